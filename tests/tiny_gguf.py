"""Tiny GGUF files with random weights, written by the tests themselves.

Every `write_*` function writes one file and returns its path; the same arguments give the same bytes. The models are
nonsense, but lively: greedy text does not fall into a loop, and rows of logits have a clear winner.

    write_llama      full attention
    write_gemma3     sliding window, SPM tokenizer
    write_mamba      recurrent, no snapshots: nothing can be taken back
    write_jamba      hybrid, no snapshots
    write_lfm2       hybrid, with snapshots (n_rs_seq)
    write_bert, write_t5_encoder     encoders: they cannot generate
    write_llama(tokenizer=NO_TOKENIZER)
    write_unknown    an architecture that llama.cpp does not know
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BOS_TEMPLATE = "{{ bos_token }}" + CHATML
"""Writes BOS itself, as Llama 3's and Gemma's do."""
RAISING_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}" + CHATML
)

BOS, IM_START, IM_END, END_OF_TEXT, PAD = range(5)
"""Ids of the control tokens; llama.cpp takes IM_END and END_OF_TEXT for ends of generation by their texts."""
CONTROL = ("<s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|pad|>")
FIRST_BYTE = len(CONTROL)
"""Byte b is token FIRST_BYTE + b."""
_MERGES = (
    *("h e", "t he", "i n", "Ġ t", "Ġt he", "Ġ a", "a n", "an d", "Ġ and", "e r", "o n", "r e", "in g", "Ġ s", "Ġ w"),
    *("o u", "Ġ b", "Ġ o", "Ġo f", "ð Ł", "Ã ©", "Ã ¼"),
)
_SPM_WORDS = ("he", "the", "▁the", "in", "▁a", "an", "and", "▁and", "er", "on", "re", "ing", "▁s", "▁w", "ou", "▁of")


@dataclass(frozen=True)
class Tokenizer:
    """What `tokenizer.ggml.*` says.

    Attributes:
        model: "gpt2" (byte-level BPE), "llama" (SPM) or "none".
        tokens, types: one per id.
        spoken: ids that a greedy model says; the others have logit 0, which never wins.
        add_bos, add_eos: None leaves the key out.
        add_space_prefix: SPM only.
    """

    model: str
    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    spoken: frozenset[int]
    merges: tuple[str, ...] = ()
    add_bos: bool | None = False
    add_eos: bool | None = None
    add_space_prefix: bool = False
    bos_id: int = BOS
    eos_id: int = IM_END
    chat_template: str | None = None

    def padded(self, n_vocab: int) -> Tokenizer:
        """With unused tokens up to `n_vocab`."""
        tail = range(len(self.tokens), n_vocab)
        tokens = (*self.tokens, *(f"[PAD{i}]" for i in tail))
        return replace(self, tokens=tokens, types=(*self.types, *(TokenType.UNUSED for _ in tail)))

    def renamed(self, texts: Mapping[int, str]) -> Tokenizer:
        """With other texts for some ids."""
        return replace(self, tokens=tuple(texts.get(i, token) for i, token in enumerate(self.tokens)))


NO_TOKENIZER = Tokenizer("none", ("",) * 256, (TokenType.UNUSED,) * 256, frozenset(range(256)))


def bpe(**changes: object) -> Tokenizer:
    """Byte-complete BPE: control tokens, 256 bytes, a few merges. Says printable ASCII, words, é, ü, half an emoji."""
    letters = _byte_letters()
    merged = tuple(merge.replace(" ", "") for merge in _MERGES)
    tokens = (*CONTROL, *letters, *merged)
    types = (*(TokenType.CONTROL for _ in CONTROL), *(TokenType.NORMAL for _ in (*letters, *merged)))
    printable = {FIRST_BYTE + byte for byte in (ord("\n"), *range(ord(" "), 127))}
    words = range(FIRST_BYTE + 256, len(tokens))
    tokenizer = Tokenizer("gpt2", tokens, types, frozenset({*printable, *words}), _MERGES)
    return replace(tokenizer, **changes)  # type: ignore[arg-type]


def spm(**changes: object) -> Tokenizer:
    """Byte-complete SPM: control tokens, 256 byte tokens, the printable characters, a few words."""
    singles = ("▁", "\n", *map(chr, range(33, 127)))
    byte_tokens = tuple(f"<0x{byte:02X}>" for byte in range(256))
    tokens = (*CONTROL, *byte_tokens, *singles, *_SPM_WORDS)
    types = (
        *(TokenType.CONTROL for _ in CONTROL),
        *(TokenType.BYTE for _ in byte_tokens),
        *(TokenType.NORMAL for _ in (*singles, *_SPM_WORDS)),
    )
    spoken = frozenset(range(FIRST_BYTE + 256, len(tokens)))
    return replace(Tokenizer("llama", tokens, types, spoken), **changes)  # type: ignore[arg-type]


def write_llama(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    loudness: float = 1.0,
    n_vocab: int | None = None,
    n_layer: int = 2,
    n_embd: int = 64,
    n_ctx_train: int = 2048,
    tokens: Mapping[int, str] | None = None,
    chat_template: str | None = None,
    add_bos: bool | None = False,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Architecture llama, full attention.

    Args:
        path: the file to write.
        seed: of the weights.
        noise: moves the weights away from the seed's by this part: a draft that agrees now and then.
        loudness: of the layers beside the embeddings; quiet models of one seed resemble each other, whatever their
            architecture.
        n_vocab: pads the vocabulary with unused tokens.
        n_layer, n_embd, n_ctx_train: sizes.
        tokens: other texts for some ids.
        chat_template: Jinja; CHATML and others are above.
        add_bos: None leaves the key out.
        tokenizer: instead of `bpe()`; then `add_bos` and `chat_template` are its own.
    """
    tokenizer = tokenizer or bpe(add_bos=add_bos, chat_template=chat_template)
    tokenizer = tokenizer.renamed(tokens or {}).padded(n_vocab or 0)
    n_head, n_head_kv, n_ff = 4, 2, 2 * n_embd
    file = _File(path, "llama", tokenizer, n_layer, n_embd, n_ctx_train, seed, noise, loudness)
    file.writer.add_feed_forward_length(n_ff)
    file.writer.add_head_count(n_head)
    file.writer.add_head_count_kv(n_head_kv)
    file.writer.add_rope_dimension_count(n_embd // n_head)
    file.writer.add_layer_norm_rms_eps(1e-5)
    file.embeddings()
    for i in range(n_layer):
        file.attention(i, n_head, n_head_kv, n_embd // n_head)
        file.feed_forward(i, n_ff)
    return file.close()


def write_gemma3(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    n_swa: int = 32,
    n_layer: int = 3,
    n_embd: int = 64,
    n_ctx_train: int = 2048,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Architecture gemma3: all layers but the last see a window of `n_swa` tokens."""
    n_head, n_head_kv, n_embd_head, n_ff = 4, 1, 16, 2 * n_embd
    file = _File(path, "gemma3", tokenizer or spm(add_bos=True), n_layer, n_embd, n_ctx_train, seed, noise)
    file.writer.add_feed_forward_length(n_ff)
    file.writer.add_head_count(n_head)
    file.writer.add_head_count_kv(n_head_kv)
    file.writer.add_key_length(n_embd_head)
    file.writer.add_value_length(n_embd_head)
    file.writer.add_layer_norm_rms_eps(1e-6)
    file.writer.add_sliding_window(n_swa)
    file.writer.add_sliding_window_pattern([i < n_layer - 1 for i in range(n_layer)])
    file.embeddings(scale=n_embd**-0.5)  # the graph multiplies them by sqrt(n_embd)
    for i in range(n_layer):
        file.attention(i, n_head, n_head_kv, n_embd_head)
        file.feed_forward(i, n_ff)
        for name in ("attn_q_norm", "attn_k_norm"):
            file.constant(f"blk.{i}.{name}.weight", n_embd_head, value=1.5)
        file.constant(f"blk.{i}.post_attention_norm.weight", n_embd)
        # Quiet: ggml's GELU is a table of 16-bit floats, whose steps would make one-row and many-row passes differ.
        file.constant(f"blk.{i}.post_ffw_norm.weight", n_embd, value=0.1)
    return file.close()


def write_mamba(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    n_layer: int = 2,
    n_embd: int = 64,
    n_ctx_train: int = 2048,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Architecture mamba: recurrent, and llama.cpp keeps no snapshots of its state."""
    file = _File(path, "mamba", tokenizer or bpe(), n_layer, n_embd, n_ctx_train, seed, noise)
    file.writer.add_feed_forward_length(0)
    file.writer.add_head_count(0)
    file.writer.add_layer_norm_rms_eps(1e-5)
    file.mamba_keys()
    file.embeddings()
    for i in range(n_layer):
        file.mamba(i)
    return file.close()


def write_jamba(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    n_embd: int = 64,
    n_ctx_train: int = 2048,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Architecture jamba: a Mamba layer and one with attention; llama.cpp keeps no snapshots of the state."""
    n_layer, n_head, n_head_kv, n_ff = 2, 4, 2, 2 * n_embd
    file = _File(path, "jamba", tokenizer or bpe(), n_layer, n_embd, n_ctx_train, seed, noise)
    file.writer.add_feed_forward_length(n_ff)
    file.writer.add_head_count(n_head)
    file.writer.add_head_count_kv([0, n_head_kv])
    file.writer.add_layer_norm_rms_eps(1e-5)
    file.mamba_keys()
    file.embeddings()
    file.mamba(0, has_inner_norms=True)
    file.feed_forward(0, n_ff)
    file.attention(1, n_head, n_head_kv, n_embd // n_head)
    file.feed_forward(1, n_ff)
    return file.close()


def write_lfm2(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    loudness: float = 1.0,
    n_embd: int = 64,
    n_ctx_train: int = 2048,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Architecture lfm2: a short convolution and attention; llama.cpp keeps snapshots (n_rs_seq) of its state."""
    n_layer, n_head, n_head_kv, n_ff, n_cache = 2, 4, 2, 2 * n_embd, 3
    file = _File(path, "lfm2", tokenizer or bpe(), n_layer, n_embd, n_ctx_train, seed, noise, loudness)
    file.writer.add_feed_forward_length(n_ff)
    file.writer.add_head_count(n_head)
    file.writer.add_head_count_kv([0, n_head_kv])
    file.writer.add_vocab_size(file.n_vocab)
    file.writer.add_shortconv_l_cache(n_cache)
    file.writer.add_layer_norm_rms_eps(1e-5)
    file.embeddings(norm="token_embd_norm")
    file.constant("blk.0.attn_norm.weight", n_embd)
    file.random("blk.0.shortconv.conv.weight", n_embd, n_cache)
    file.random("blk.0.shortconv.in_proj.weight", 3 * n_embd, n_embd)
    file.random("blk.0.shortconv.out_proj.weight", n_embd, n_embd, scale=loudness)
    file.feed_forward(0, n_ff)
    file.attention(1, n_head, n_head_kv, n_embd // n_head)
    for name in ("attn_q_norm", "attn_k_norm"):
        file.constant(f"blk.1.{name}.weight", n_embd // n_head, value=1.5)
    file.feed_forward(1, n_ff)
    return file.close()


def write_bert(path: Path, *, seed: int = 0, n_embd: int = 64, tokenizer: Tokenizer | None = None) -> Path:
    """Architecture bert: an embedding model, which llama.cpp's `llama_model_has_decoder` takes for a decoder."""
    n_layer, n_ff, n_ctx_train = 1, 2 * n_embd, 512
    file = _File(path, "bert", tokenizer or bpe(), n_layer, n_embd, n_ctx_train, seed)
    file.writer.add_feed_forward_length(n_ff)
    file.writer.add_head_count(4)
    file.writer.add_layer_norm_eps(1e-5)
    file.writer.add_causal_attention(False)
    file.writer.add_token_type_count(2)
    file.random("token_embd.weight", file.n_vocab, n_embd)
    file.random("position_embd.weight", n_ctx_train, n_embd)
    file.layer_norm("token_embd_norm")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        file.random(f"blk.0.{name}.weight", n_embd, n_embd)
    file.layer_norm("blk.0.attn_output_norm")
    file.random("blk.0.ffn_up.weight", n_ff, n_embd)
    file.random("blk.0.ffn_down.weight", n_embd, n_ff)
    file.layer_norm("blk.0.layer_output_norm")
    return file.close()


def write_t5_encoder(path: Path, *, seed: int = 0, n_embd: int = 64, tokenizer: Tokenizer | None = None) -> Path:
    """Architecture t5encoder: an encoder, and known as one to llama.cpp."""
    n_layer, n_head, n_ff, n_buckets = 1, 4, 2 * n_embd, 32
    file = _File(path, "t5encoder", tokenizer or bpe(), n_layer, n_embd, 512, seed)
    file.writer.add_feed_forward_length(n_ff)
    file.writer.add_head_count(n_head)
    file.writer.add_layer_norm_rms_eps(1e-6)
    file.writer.add_relative_attn_buckets_count(n_buckets)
    file.random("token_embd.weight", file.n_vocab, n_embd)
    file.constant("enc.output_norm.weight", n_embd)
    file.random("enc.blk.0.attn_rel_b.weight", n_buckets, n_head)
    for name in ("attn_q", "attn_k", "attn_v", "attn_o"):
        file.random(f"enc.blk.0.{name}.weight", n_embd, n_embd)
    for name in ("attn_norm", "ffn_norm"):
        file.constant(f"enc.blk.0.{name}.weight", n_embd)
    for name in ("ffn_gate", "ffn_up"):
        file.random(f"enc.blk.0.{name}.weight", n_ff, n_embd)
    file.random("enc.blk.0.ffn_down.weight", n_embd, n_ff)
    return file.close()


def write_unknown(path: Path) -> Path:
    """A whole file of an architecture that llama.cpp does not know."""
    return _File(path, "blimp", bpe(), 1, 64, 512, seed=0).close()


class _File:
    """A GGUF file in the making. Shapes are numpy's: (rows, columns) is ggml's {columns, rows}."""

    def __init__(
        self,
        path: Path,
        architecture: str,
        tokenizer: Tokenizer,
        n_layer: int,
        n_embd: int,
        n_ctx_train: int,
        seed: int,
        noise: float = 0.0,
        loudness: float = 1.0,
    ) -> None:
        self.path = path
        self.tokenizer = tokenizer
        self.n_embd = n_embd
        self.n_vocab = len(tokenizer.tokens)
        self._weights = np.random.default_rng(seed)
        self._noise = np.random.default_rng([seed, 1])
        self._noise_scale = noise
        self._loudness = loudness
        self.writer = GGUFWriter(path, architecture)
        self.writer.add_name(f"tiny {architecture}")
        self.writer.add_block_count(n_layer)
        self.writer.add_embedding_length(n_embd)
        self.writer.add_context_length(n_ctx_train)
        self.writer.add_file_type(LlamaFileType.ALL_F32)
        self._add_tokenizer()

    def _add_tokenizer(self) -> None:
        tokenizer, writer = self.tokenizer, self.writer
        writer.add_tokenizer_model(tokenizer.model)
        if tokenizer.model == "none":
            writer.add_vocab_size(self.n_vocab)
            return
        writer.add_token_list(tokenizer.tokens)
        writer.add_token_types(tokenizer.types)
        if tokenizer.model == "gpt2":
            writer.add_tokenizer_pre("default")
            writer.add_token_merges(tokenizer.merges)
        else:
            writer.add_token_scores([float(len(token)) for token in tokenizer.tokens])
            writer.add_add_space_prefix(tokenizer.add_space_prefix)
        writer.add_bos_token_id(tokenizer.bos_id)
        writer.add_eos_token_id(tokenizer.eos_id)
        if tokenizer.add_bos is not None:
            writer.add_add_bos_token(tokenizer.add_bos)
        if tokenizer.add_eos is not None:
            writer.add_add_eos_token(tokenizer.add_eos)
        if tokenizer.chat_template is not None:
            writer.add_chat_template(tokenizer.chat_template)

    def random(self, name: str, *shape: int, scale: float = 1.0) -> None:
        """A matrix that keeps the size of what it multiplies, times `scale`."""
        self._add(name, self._values(shape, scale * shape[-1] ** -0.5))

    def _values(self, shape: Sequence[int], scale: float) -> np.ndarray:
        values = self._weights.standard_normal(shape) + self._noise_scale * self._noise.standard_normal(shape)
        return values * scale

    def constant(self, name: str, *shape: int, value: float = 1.0) -> None:
        self._add(name, np.full(shape, value))

    def _add(self, name: str, values: np.ndarray) -> None:
        self.writer.add_tensor(name, values.astype(np.float32))

    def layer_norm(self, name: str) -> None:
        self.constant(f"{name}.weight", self.n_embd)
        self.constant(f"{name}.bias", self.n_embd, value=0.0)

    def embeddings(self, scale: float = 1.0, norm: str = "output_norm") -> None:
        """Input embeddings of size one, and an output that never prefers a token that is not spoken."""
        self._add("token_embd.weight", self._values((self.n_vocab, self.n_embd), scale))
        self.constant(f"{norm}.weight", self.n_embd)
        output = self._values((self.n_vocab, self.n_embd), 3 * self.n_embd**-0.5)
        output[[i for i in range(self.n_vocab) if i not in self.tokenizer.spoken]] = 0.0
        self._add("output.weight", output)

    def attention(self, i: int, n_head: int, n_head_kv: int, n_embd_head: int) -> None:
        """Sharp heads with loud values, so that the text depends on more than its last token."""
        n_embd = self.n_embd
        self.constant(f"blk.{i}.attn_norm.weight", n_embd)
        self.random(f"blk.{i}.attn_q.weight", n_head * n_embd_head, n_embd, scale=1.5)
        self.random(f"blk.{i}.attn_k.weight", n_head_kv * n_embd_head, n_embd, scale=1.5)
        self.random(f"blk.{i}.attn_v.weight", n_head_kv * n_embd_head, n_embd, scale=2.0)
        self.random(f"blk.{i}.attn_output.weight", n_embd, n_head * n_embd_head, scale=self._loudness)

    def feed_forward(self, i: int, n_ff: int) -> None:
        n_embd = self.n_embd
        self.constant(f"blk.{i}.ffn_norm.weight", n_embd)
        self.random(f"blk.{i}.ffn_gate.weight", n_ff, n_embd)
        self.random(f"blk.{i}.ffn_up.weight", n_ff, n_embd)
        self.random(f"blk.{i}.ffn_down.weight", n_embd, n_ff, scale=2.0 * self._loudness)

    _D_CONV, _D_STATE, _DT_RANK = 4, 8, 4

    def mamba_keys(self) -> None:
        self.writer.add_ssm_conv_kernel(self._D_CONV)
        self.writer.add_ssm_inner_size(2 * self.n_embd)
        self.writer.add_ssm_state_size(self._D_STATE)
        self.writer.add_ssm_time_step_rank(self._DT_RANK)

    def mamba(self, i: int, *, has_inner_norms: bool = False) -> None:
        """A Mamba layer whose state decays over some ten tokens."""
        n_embd, d_inner, d_state, dt_rank = self.n_embd, 2 * self.n_embd, self._D_STATE, self._DT_RANK
        self.constant(f"blk.{i}.attn_norm.weight", n_embd)
        self.random(f"blk.{i}.ssm_in.weight", 2 * d_inner, n_embd)
        self.random(f"blk.{i}.ssm_conv1d.weight", d_inner, self._D_CONV)
        self.constant(f"blk.{i}.ssm_conv1d.bias", d_inner, value=0.0)
        self.random(f"blk.{i}.ssm_x.weight", dt_rank + 2 * d_state, d_inner, scale=2.0)
        self.random(f"blk.{i}.ssm_dt.weight", d_inner, dt_rank)
        self.constant(f"blk.{i}.ssm_dt.bias", d_inner, value=0.0)
        self.constant(f"blk.{i}.ssm_a", d_inner, d_state, value=-0.1)
        self.constant(f"blk.{i}.ssm_d", d_inner)
        self.random(f"blk.{i}.ssm_out.weight", n_embd, d_inner, scale=2.0)
        if has_inner_norms:
            for name, size in (("ssm_dt_norm", dt_rank), ("ssm_b_norm", d_state), ("ssm_c_norm", d_state)):
                self.constant(f"blk.{i}.{name}.weight", size)

    def close(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path


def _byte_letters() -> tuple[str, ...]:
    """GPT-2's letter for every byte: printable Latin-1 stands for itself, the rest for 256 and up."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return tuple(chr(byte if byte in visible else 256 + hidden.index(byte)) for byte in range(256))
