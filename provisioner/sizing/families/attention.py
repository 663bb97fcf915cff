"""Attention blocks and MLPs as matrices: the pieces that the families are put together from."""

from __future__ import annotations

from provisioner.sizing.shapes import Matrix, Mixer, Mlp, Split, TokenCache


def grouped_attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    window: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    extra_vectors: int = 0,
    gated: bool = False,
    has_cache: bool = True,
    keys_are_values: bool = False,
) -> Mixer:
    """Multi-head, grouped or multi-query attention.

    ``gated`` doubles the query projection (output gate). ``has_cache`` is false where a layer reuses another's keys and values.
    ``keys_are_values`` drops the value projection; the cache still holds both.
    """
    width = value_dim or head_dim
    query = heads * head_dim * (2 if gated else 1)
    matrices = [
        Matrix("q_proj", hidden, query),
        Matrix("k_proj", hidden, kv_heads * head_dim),
        Matrix("v_proj", hidden, kv_heads * width),
        Matrix("o_proj", heads * width, hidden, Split.ROW),
    ]
    if keys_are_values:
        del matrices[2]
    bias = sum(matrix.outputs for matrix in matrices[:-1]) if qkv_bias else 0
    bias += hidden if output_bias else 0
    cache = TokenCache(kv_heads, head_dim + width, window)
    return Mixer(
        kind="window" if window else "full",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=width,
        matrices=tuple(matrices),
        vector_params=bias + extra_vectors,
        caches=(cache,) if has_cache else (),
    )


def latent_attention(
    hidden: int,
    heads: int,
    *,
    query_rank: int,
    latent: int,
    nope: int,
    rope: int,
    value_dim: int,
    index: tuple[Matrix, ...] = (),
    index_cache: TokenCache | None = None,
    extra: tuple[Matrix, ...] = (),
    extra_vectors: int = 0,
) -> Mixer:
    """Multi-head latent attention (DeepSeek-V2): one compressed entry per token, whole on every tensor-parallel rank."""
    head_dim = nope + rope
    query: tuple[Matrix, ...]
    if query_rank:
        query = (
            Matrix("q_a_proj", hidden, query_rank, Split.NONE),
            Matrix("q_b_proj", query_rank, heads * head_dim),
        )
    else:
        query = (Matrix("q_proj", hidden, heads * head_dim),)
    matrices = (
        *query,
        Matrix("kv_a_proj_with_mqa", hidden, latent + rope, Split.NONE),
        Matrix("kv_b_proj", latent, heads * (nope + value_dim)),
        Matrix("o_proj", heads * value_dim, hidden, Split.ROW),
        *index,
        *extra,
    )
    caches = (TokenCache(1, latent + rope, is_latent=True),)
    return Mixer(
        kind="latent",
        heads=heads,
        kv_heads=0,
        head_dim=head_dim,
        value_dim=value_dim,
        matrices=matrices,
        vector_params=query_rank + latent + extra_vectors,
        caches=(*caches, index_cache) if index_cache else caches,
    )


def mlp_matrices(hidden: int, width: int, *, gated: bool = True) -> tuple[Matrix, ...]:
    """Up (and gate) and down projections."""
    up = (Matrix("gate_proj", hidden, width),) if gated else ()
    return (*up, Matrix("up_proj", hidden, width), Matrix("down_proj", width, hidden, Split.ROW))


def dense_mlp(hidden: int, width: int, *, gated: bool = True, bias: bool = False) -> Mlp:
    """A dense MLP."""
    matrices = mlp_matrices(hidden, width, gated=gated)
    return Mlp(matrices, vector_params=sum(matrix.outputs for matrix in matrices) if bias else 0)


def expert_mlp(
    hidden: int,
    width: int,
    experts: int,
    per_token: int,
    *,
    shared_width: int = 0,
    gated: bool = True,
    router_bias: bool = False,
    shared_gate: bool = False,
    expert_bias: bool = False,
) -> Mlp:
    """Routed experts with an optional shared expert."""
    matrices = mlp_matrices(hidden, width, gated=gated)
    return Mlp(
        matrices=mlp_matrices(hidden, shared_width, gated=gated) if shared_width else (),
        expert_matrices=matrices,
        experts=experts,
        experts_per_token=per_token,
        router_params=hidden * experts,
        vector_params=(experts if router_bias else 0) + (hidden if shared_gate else 0),
        expert_vector_params=sum(matrix.outputs for matrix in matrices) if expert_bias else 0,
    )
