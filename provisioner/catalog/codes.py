"""Words for what is wrong with an offer or a price: the codes of suspect_reasons.csv and our own."""

from __future__ import annotations

from collections.abc import Mapping

NOT_GPU = "not_a_cuda_or_rocm_gpu"
CPU_HOST = "cpu_host"
NOT_LISTED = "status_not_listed"
RESERVATION_ONLY = "status_reservation_only"
RESTRICTED = "status_restricted"
NO_ON_DEMAND = "on_demand_not_available"
NO_SPOT = "spot_not_available"
NO_CAPACITY_BLOCK = "capacity_block_not_available"
CAPACITY_BLOCK_ONLY = "capacity_block_only"
NOT_OFFERED = "not_offered_here"
PRICE_OUTLIER = "price_outlier"
LOCAL_SSD_ASSUMED = "local_ssd_price_assumed"
EXCLUDES_LOCAL_SSD = "excludes_local_ssd"
OTHER_REGION = "price_of_other_region"
STALE = "stale"
NO_SPARE = "spot_equals_on_demand"
AT_FLOOR = "spot_at_floor_10pct"

OWN_MEANINGS: Mapping[str, str] = {
    NOT_GPU: "the accelerator needs a runtime of its own (Neuron, Gaudi), not CUDA or ROCm",
    CPU_HOST: "the type has no GPU; GPUs attach to it under the names host+gpuxN",
    NOT_LISTED: "the cloud's newest listing of instance types no longer has the type",
    RESERVATION_ONLY: "the type is sold by reservation only",
    RESTRICTED: "the type is sold to selected customers only",
    NO_ON_DEMAND: "the type cannot be started on demand",
    NO_SPOT: "the type is not sold as spot capacity",
    NO_CAPACITY_BLOCK: "the type is not sold in capacity blocks",
    CAPACITY_BLOCK_ONLY: "capacity blocks are sold, and no region has an on-demand price for the type",
    NOT_OFFERED: "a price exists, but no listing says that the region or zone has the type",
    PRICE_OUTLIER: "the price is more than 5 times away from its like: probably a broken source row",
    LOCAL_SSD_ASSUMED: "the region's local SSD price is unknown; that of the cloud's reference region was added",
    EXCLUDES_LOCAL_SSD: "the price leaves out the local disks that come with the type, and their price is unknown",
    OTHER_REGION: "the region's own price is unknown; the price is that of the cloud's reference region",
}
"""Codes that the catalog finds itself; those of suspect_reasons.csv come with the data."""
