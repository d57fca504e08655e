"""Constructors: the protocol's options by the names that the field gives to constructor parameters.

A function that makes modules from sizes (``make_model(src_vocab, tgt_vocab, N, d_model, ...)``) is a constructor, too.
Constants of the file that it reads (``n_embd = 384`` above the classes of a lecture) serve as its parameters.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from torch import nn

from conformance.adapters.inference.facts import Fact, Unresolved

OPTIONS: dict[str, tuple[str, ...]] = {
    "d_model": (
        *("d_model", "embed_dim", "hidden_size", "hidden_dim", "dim", "dim_model", "model_dimension", "model_dim"),
        *("n_embd", "n_embed", "size", "hidden", "d_in", "emb", "emb_dim", "embed_size", "embedding_dim", "emb_size"),
        *("embedding_size", "features", "normalized_shape", "d", "width", "in_features", "input_dim", "num_hiddens"),
        *("d_embed", "dimension", "channels", "ndim", "num_features", "feature_dim", "model_size"),
        *("embedding_dimension", "n_feat", "input_size", "idim", "nout"),
    ),
    "n_heads": (
        *("n_heads", "num_heads", "n_head", "nhead", "heads", "h", "num_head", "number_of_heads", "attn_heads"),
        *("num_attention_heads", "nheads", "head_num", "head_count", "encoder_attention_heads"),
        *("decoder_attention_heads", "attention_heads"),
    ),
    "n_kv_heads": (
        *("n_kv_heads", "num_kv_heads", "n_query_groups", "num_key_value_heads", "kv_heads", "n_kv_head"),
        *("num_query_groups", "num_kv_groups"),
    ),
    "d_ff": (
        *("d_ff", "dim_feedforward", "ffn_hidden", "d_inner", "intermediate_size", "ff_dim", "ffn_dim", "mlp_dim"),
        *("dff", "inner_dim", "feedforward_dim", "hidden_features", "ff_size", "d_hid", "filter_size"),
        *("ffn_num_hiddens", "feed_forward_dim", "d_hidden", "intermediate_dim", "hidden_dim", "hidden_size"),
        *("hidden", "feedforward_size", "d_ffn", "hidden_units", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"),
    ),
    "dropout": (
        *("dropout", "drop_prob", "p", "attn_pdrop", "resid_pdrop", "dropout_p", "dropout_rate", "drop"),
        *("attn_dropout", "proj_drop", "attn_drop", "p_drop", "dropout_prob", "ffn_dropout", "attention_dropout"),
        *("hidden_dropout", "resid_dropout", "residual_dropout", "attention_probs_dropout_prob"),
        *("hidden_dropout_prob", "drop_rate"),
    ),
    "d_k": ("d_k", "head_dim", "dim_head", "key_dim", "d_head", "head_size", "d_key", "dim_k", "d_kv"),
    "d_v": ("d_v", "value_dim", "d_value", "dim_v"),
    "max_len": (
        *("max_len", "max_seq_len", "max_length", "block_size", "context_length", "max_position_embeddings"),
        *("maxlen", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "context_size", "seq_len"),
        *("num_positions", "ctx_len", "sequence_length", "max_position", "max_positions"),
    ),
    "bias": (
        *("bias", "qkv_bias", "use_bias", "with_bias", "out_bias", "attention_bias", "add_bias", "proj_bias"),
        *("mlp_bias", "out_proj_bias"),
    ),
    "eps": ("eps", "epsilon", "layer_norm_eps", "norm_eps", "rms_norm_eps", "variance_epsilon", "layer_norm_epsilon"),
    "base": ("base", "theta", "rope_theta", "rope_base", "freq_base"),
    "norm_first": ("norm_first", "pre_norm", "prenorm", "normalize_before", "is_pre_norm", "pre_ln"),
    "activation": ("activation", "act", "hidden_act", "activation_function"),
    "src_vocab": (
        *("src_vocab_size", "src_vocab", "source_vocab_size", "n_src_vocab", "enc_voc_size", "input_vocab_size"),
        *("source_vocab", "encoder_vocab_size"),
    ),
    "tgt_vocab": (
        *("tgt_vocab_size", "tgt_vocab", "target_vocab_size", "trg_vocab_size", "n_tgt_vocab", "n_trg_vocab"),
        *("dec_voc_size", "target_vocab", "decoder_vocab_size", "trg_vocab", "output_vocab_size"),
    ),
    "pad_id": (
        *("pad_id", "pad_idx", "padding_idx", "pad_token_id", "pad_token", "pad_index", "src_pad_idx", "trg_pad_idx"),
        *("tgt_pad_idx",),
    ),
    "tied": ("tie_word_embeddings", "tied", "tie_weights", "weight_tying", "tie_embeddings", "tied_embeddings"),
    "vocab": (
        *("vocab_size", "vocab", "n_vocab", "num_tokens", "n_tokens", "num_embeddings"),
        *("vocab_size_or_config_json_file", "ntoken"),
    ),
    "n_layers": (
        *("n_layers", "num_layers", "n_layer", "num_hidden_layers", "layers", "depth", "num_blocks", "n_blocks"),
        *("nlayers", "num_decoder_layers", "num_encoder_layers", "encoder_layers", "decoder_layers", "n"),
    ),
    "batch_first": ("batch_first",),
    "causal": ("causal", "is_causal", "masked"),
    "layer_idx": ("layer_idx", "layer_id", "layer_index"),
    "d_out": ("d_out", "out_dim", "output_dim", "dim_out"),
    "device": ("device",),
    "parallel": ("parallel_residual", "use_parallel_residual"),
}
"""The protocol's options (and a few of constructors only) -> their names in constructors."""

FIXED = {"batch_first": True, "layer_idx": 0, "device": "cpu", "parallel": False}
_CONFIG = {"eps": 1e-5, "activation": "relu", "n_layers": 2, "vocab": 11, "bias": True, "causal": False}
"""What a constructor is given that needs it, and a bare config object has, besides the options that are asked for."""

CONFIGS = (
    "config",
    "cfg",
    "args",
    "conf",
    "configuration",
    "params",
    "hparams",
    "model_args",
    "model_config",
    "opt",
    "opts",
)
NEUTRAL = ("dtype", "kdim", "vdim", "name")
"""Parameters that keep their default."""


class Constructor:
    """How to construct with a class or a function: `names` maps an option to the parameters that mean it, `constants`
    to the constants of the file.

    Raises Unresolved when there is a required parameter whose meaning is unknown, or a function without options: it
    may do anything but make a module.
    """

    def __init__(self, cls: Callable[..., Any]) -> None:
        self.cls = cls
        self.names: dict[str, list[str]] = {}
        self.required: set[str] = set()
        self.config_parameter: str | None = None
        self.config_constructor: Constructor | None = None
        self.read: set[str] = set()
        unknown: list[str] = []
        parameters = [p for p in _parameters(cls) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        required = [p for p in parameters if p.default is p.empty]
        for parameter in parameters:
            option = self._meaning(parameter.name)
            if option == "activation" and (
                inspect.isclass(parameter.default) or isinstance(parameter.default, nn.Module)
            ):
                continue  # it takes a module, not a name: its default is kept
            if option is not None:
                self.names.setdefault(option, []).append(parameter.name)
                if parameter.default is parameter.empty:
                    self.required.add(option)
            elif parameter.name not in NEUTRAL and parameter.default is parameter.empty:
                unknown.append(parameter.name)
        self.scope: dict[str, Any] = vars(sys.modules.get(cls.__module__, SimpleNamespace()))
        self.constants: dict[str, list[str]] = {}
        for name in sorted(_constants_read(cls, self.scope)):
            option = self._meaning(name)
            if option is not None and (isinstance(self.scope[name], (int, float)) or option == "device"):
                self.constants.setdefault(option, []).append(name)
        config = next((name for name in unknown if name in CONFIGS), None)
        if config is not None:
            unknown.remove(config)
            self.config_parameter = config
            self.config_constructor = self._config_class(config)
        elif isinstance(cls, type) and len(unknown) == len(required) == 1 and "d_model" not in self.names:
            self.names["d_model"] = [unknown.pop()]
        if unknown and isinstance(cls, type):
            raise Unresolved(
                f"{cls.__name__}'s constructor needs {', '.join(unknown)}, whose meaning is unknown: name a function "
                "that makes it from d_model, n_heads, ..., write a subclass whose constructor takes these names, or a "
                "class with build(role, config)"
            )
        if not isinstance(cls, type) and (unknown or not self.known):
            raise Unresolved(
                f"{cls.__name__} is a function that {_needs(unknown)}: write one around it that makes an nn.Module "
                "from d_model, n_heads, ... by these names, or a class with build(role, config)"
            )

    def _meaning(self, name: str) -> str | None:
        lower = name.lower()
        for option, names in OPTIONS.items():
            if lower in names and (option not in self.names or lower not in OPTIONS["d_ff"]):
                return option
        return None

    def _config_class(self, name: str) -> Constructor | None:
        """The class of the config parameter, if it can be constructed by the same names: its annotation, or the config
        class of the same file whose name begins like the class's (BertLayer: BertConfig), or the only one."""
        annotation = next(p.annotation for p in _parameters(self.cls) if p.name == name)
        scope = vars(sys.modules.get(self.cls.__module__, SimpleNamespace()))
        if isinstance(annotation, str):
            scope = {**getattr(vars(self.cls).get("__init__"), "__globals__", {}), **scope}
            annotation = scope.get(annotation)
        unhelpful = (inspect.Parameter.empty, SimpleNamespace, Any)
        if inspect.isclass(annotation) and annotation.__module__ != "builtins" and annotation not in unhelpful:
            return Constructor(annotation)
        configs = {key.removesuffix("Config"): value for key, value in scope.items() if key.endswith("Config")}
        alike = [
            name for name, value in configs.items() if inspect.isclass(value) and self.cls.__name__.startswith(name)
        ]
        if not any(alike) and len(configs) == 1 and name == "config":
            alike = list(configs)
        return Constructor(configs[max(alike, key=len)]) if any(alike) else None

    @property
    def is_shared(self) -> bool:
        """Whether its options are those of a whole model, and not all of this class."""
        return self.config_parameter is not None

    @property
    def known(self) -> set[str]:
        """The options that can be set; of a config without a class, those that making has read so far."""
        own = {*self.names, *self.constants}
        if self.config_parameter is None:
            return own
        return own | (self.config_constructor.known if self.config_constructor else self.read or set(OPTIONS))

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[option] for option, names in self.names.items() if option in values for name in names}

    def make(self, values: Mapping[str, Any]) -> Any:
        """The object, from option values; whatever has no parameter is left out.

        Raises Unresolved when the constructor raises; its refusals of the values (ValueError, assertion) pass through.
        """
        values = {**FIXED, **{option: _CONFIG[option] for option in self.required & set(_CONFIG)}, **values}
        if self.config_parameter is not None:
            values = {"n_heads": 1, **values}  # a config checks the widths of heads even for parts without any
        arguments = self.arguments(values)
        if self.config_parameter is not None:
            config = self.config_constructor
            given = config.make(values) if config else _Config(_CONFIG | values, self.read.add)
            arguments[self.config_parameter] = given
        constants = {
            name: values[option] for option, names in self.constants.items() if option in values for name in names
        }
        try:
            with _set(self.scope, constants):
                made = self.cls(**arguments)
        except (ValueError, AssertionError):
            raise  # a refusal of these values
        except Exception as error:
            around = "subclass whose constructor" if isinstance(self.cls, type) else "function around it that"
            raise Unresolved(
                f"{self.cls.__name__}({_shown(arguments)}) raised {type(error).__name__}: {error}; write a {around} "
                "takes d_model, n_heads, ... and calls it rightly"
            ) from error
        if not isinstance(self.cls, type) and not isinstance(made, nn.Module):
            raise Unresolved(
                f"{self.cls.__name__} is a function that returns {type(made).__name__}, which is no nn.Module: write "
                "one around it that returns the module alone"
            )
        if constants:
            _keep_set(made, self.scope, constants)
        return made

    def fact(self) -> Fact:
        if self.config_parameter is not None:
            what = self.config_constructor.cls.__name__ if self.config_constructor else "an object with every alias"
            return Fact("constructor", f"{self.config_parameter} = {what}", "the only required parameter is a config")
        shown = [f"{'/'.join(names)} = {option}" for option, names in self.names.items()]
        shown += [f"{'/'.join(names)} of the file = {option}" for option, names in self.constants.items()]
        return Fact("constructor", ", ".join(shown) or "no options", "parameter names")


def _needs(unknown: list[str]) -> str:
    return f"needs {', '.join(unknown)}, whose meaning is unknown" if unknown else "takes no size of a module"


def _parameters(cls: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(cls).parameters.values())


class _Config:
    """A config that has the options under every name, as attributes and as the keys of a dict; the first option that
    has a name wins. `read` is told each option that is read."""

    def __init__(self, values: Mapping[str, Any], read: Callable[[str], None]) -> None:
        self._options = {name: option for option in reversed([*values]) for name in OPTIONS.get(option, ())}
        self._values, self._read = values, read

    def __getitem__(self, name: str) -> Any:
        option = self._options[name]
        self._read(option)
        return self._values[option]

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_" or name not in self._options:
            raise AttributeError(f"the config has no {name}")
        return self[name]

    def __contains__(self, name: str) -> bool:
        return name in self._options

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._options else default

    def __repr__(self) -> str:
        return "<the options under every name>"


# --- constants of a file --------------------------------------------------------------------------


def _constants_read(made_by: Any, scope: Mapping[str, Any]) -> set[str]:
    """The names of the file that a class or function reads and that are neither classes nor functions; what it uses of
    the file's reads them for it."""
    found: set[str] = set()
    seen: list[Any] = []
    rest: list[Any] = [made_by]
    while rest:
        seen.append(used := rest.pop())
        names = scope.keys() & ({} if isinstance(used, type) else _global_names(used.__code__))
        inside = [*used.__bases__, *vars(used).values()] if isinstance(used, type) else [scope[name] for name in names]
        parts = [part for part in inside if isinstance(part, (type, FunctionType)) and part not in seen]
        rest += [part for part in parts if part.__module__ == made_by.__module__]
        found |= names
    return {name for name in found if not isinstance(scope[name], (type, FunctionType))}


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)


@contextmanager
def _set(scope: dict[str, Any], constants: Mapping[str, Any]) -> Iterator[None]:
    before = {name: scope[name] for name in constants}
    scope.update(constants)
    try:
        yield
    finally:
        scope.update(before)


def _keep_set(module: nn.Module, scope: dict[str, Any], constants: Mapping[str, Any]) -> None:
    """Let the module and its parts run with the constants that it was made with: forward may read them, too."""
    entered: list[Any] = []

    def enter(*_: Any) -> None:
        entered.append(_set(scope, constants))
        entered[-1].__enter__()

    def leave(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    for part in module.modules():
        part.register_forward_pre_hook(enter)
        part.register_forward_hook(leave, always_call=True)


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
