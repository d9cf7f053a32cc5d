"""What decoders differ in: one row of sizes and differences says which one a model is."""

from dataclasses import dataclass, fields

from pcp.models.parameters import InvalidConfiguration


@dataclass(frozen=True, slots=True)
class Rotary:
    """How queries and keys turn with their places.

    Arguments:
        base: the slowest angle is about place / base.
        width: features of a head that turn, the first ones; even. None: all.
        speeds: radians a place of each pair of features; empty: those of the base.
        long_speeds: the same in texts of more than `original` tokens; empty: no others.
        original: tokens of the longest text that the model was first trained on.
        growth: how far the base grows with the length of texts beyond `original`; 1: not at all.
        scale: of what has turned.

    Source: Su et al., "RoFormer", 2021; Peng et al., "YaRN", 2023; Ding et al., "LongRoPE", 2024.
    """

    base: float = 10000.0
    width: int | None = None
    speeds: tuple[float, ...] = ()
    long_speeds: tuple[float, ...] = ()
    original: int = 0
    growth: float = 1.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forward blocks of which each token takes a few.

    Arguments:
        count: how many there are.
        chosen: how many each token takes, those of the highest scores.
        hidden: size between the halves of each.
        normalised: whether the weights of those that were chosen add up to 1.
        shared: hidden size of one more that all tokens take, with a gate of its own; 0: there is none.
        layers: blocks that have experts; the others have one feed-forward block. None: all have.

    Source: Shazeer et al., "Outrageously Large Neural Networks", 2017.
    """

    count: int
    chosen: int
    hidden: int
    normalised: bool = True
    shared: int = 0
    layers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DecoderConfig:
    """A decoder: its sizes, and in what it differs from a Llama.

    Arguments:
        family: whose names its weights have, a row of `pcp.models.names`.
        layers: transformer blocks.
        heads: attention heads of each block.
        key_value_heads: heads of keys and values; each serves heads / key_value_heads queries.
        width: size of the residual stream.
        own_head_width: numbers of a query or key of one head; None: the heads share the width.
        hidden: size between the two halves of the feed-forward block.
        context: longest sequence, in tokens.
        vocabulary: number of tokens.
        epsilon: added to the mean square, or variance, in norms.
        layer_norm: whether norms shift to mean 0, too.
        one_more: whether norms scale by 1 + their weights.
        norms_after: whether attention and feed-forward are normed before they are added, too.
        parallel: whether both read the same residual stream.
        rotary: how queries and keys turn; None: places are learnt and added to the embedding.
        local_rotary: the same in blocks with a window; None: no other way.
        query_key_norm: `head` or `whole`: queries and keys are normed, over a head or over all; empty: not.
        clip: queries, keys and values are at most so large; None: as they are.
        joined: whether query, key and value are one product.
        biases: projections that have one, and `norm`.
        query_scale: scores are divided by its root; None: the width of a head.
        attention_cap, score_cap: bounds of scores, as of `scaled_dot_product_attention`.
        window: keys that a query of a block in `windowed` sees.
        windowed: blocks with the window.
        embedding_scale: times the embedding.
        activation: a name of `pcp.models.decoder.ACTIVATIONS`.
        gated: whether one more projection gates the hidden features.
        tied: whether the token embedding is also the head.
        experts: where the feed-forward block is many.
    """

    family: str = "llama"
    layers: int
    heads: int
    key_value_heads: int
    width: int
    hidden: int
    context: int
    vocabulary: int
    own_head_width: int | None = None
    epsilon: float = 1e-5
    layer_norm: bool = False
    one_more: bool = False
    norms_after: bool = False
    parallel: bool = False
    rotary: Rotary | None = None
    local_rotary: Rotary | None = None
    query_key_norm: str = ""
    clip: float | None = None
    joined: bool = False
    biases: tuple[str, ...] = ()
    query_scale: float | None = None
    attention_cap: float | None = None
    score_cap: float | None = None
    window: int | None = None
    windowed: tuple[int, ...] = ()
    embedding_scale: float = 1.0
    activation: str = "silu"
    gated: bool = True
    tied: bool = False
    experts: Experts | None = None

    def __post_init__(self) -> None:
        sizes = (
            self.layers,
            self.heads,
            self.key_value_heads,
            self.width,
            self.hidden,
            self.context,
            self.vocabulary,
        )
        if (
            min(sizes) < 1
            or (self.own_head_width is None and self.width % self.heads)
            or self.heads % self.key_value_heads
            or (self.joined and self.heads != self.key_value_heads)
        ):
            raise InvalidConfiguration(
                f"{self} is no decoder: sizes must be positive, heads must divide width, and key_value_heads must divide heads"
            )
        turning = (self.rotary.width or self.head_width) if self.rotary else 0
        if turning % 2 or turning > self.head_width:
            raise InvalidConfiguration(
                f"{self} is no decoder: {turning} features of a head turn; expected an even number, at most {self.head_width}"
            )
        if self.experts and not 1 <= self.experts.chosen <= self.experts.count:
            raise InvalidConfiguration(
                f"{self} is no decoder: a token takes {self.experts.chosen} of {self.experts.count} experts"
            )

    def __repr__(self) -> str:
        """The sizes; and the differences, where they are short."""
        given = (
            f"{field.name}={value!r}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
            and field.name != "family"
            and not isinstance(value, tuple | Rotary | Experts)
        )
        return f"{self.family}({', '.join(given)})"

    @property
    def head_width(self) -> int:
        """Numbers of a query or key of one head."""
        return self.own_head_width or self.width // self.heads

    def has_experts(self, layer: int) -> bool:
        """Whether a block's feed-forward block is many."""
        return self.experts is not None and (self.experts.layers is None or layer in self.experts.layers)

    def window_of(self, layer: int) -> int | None:
        """How many keys a query of a block sees; None: all before it."""
        return self.window if layer in self.windowed else None

    def rotary_of(self, layer: int) -> Rotary | None:
        """How queries and keys of a block turn."""
        return self.local_rotary if self.local_rotary and layer in self.windowed else self.rotary
