/* A fake libnvidia-ml.so.1: three GPUs; FAKE_GPU_UTIL gives their utilisation ("0,97,3"), FAKE_GPU_CODE what the reading answers
   (3: not supported, as on a MIG device). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned int gpu, memory; } util_t;
static const char *list(void) { const char *e = getenv("FAKE_GPU_UTIL"); return e ? e : "0,97,3"; }
static int number(void) { int c = 1; for (const char *e = list(); *e; e++) c += *e == ','; return c; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number(); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if ((int)index >= number()) return 2;
  *handle = (void *)(size_t)(index + 1);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, util_t *rates) {
  const char *code = getenv("FAKE_GPU_CODE"), *e = list();
  if (code) return atoi(code);
  for (int i = (int)(size_t)handle - 1; i > 0 && (e = strchr(e, ',')); i--) e++;
  rates->gpu = e ? atoi(e) : 0;
  rates->memory = 0;
  return 0;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { *milliwatts = 68000; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) { *milliwatts = 700000; return 0; }
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) { *current = *pending = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *infos) { *count = 0; return 0; }
