"""Models whose weights are stored in fewer bytes: int8 rows with scales, or bfloat16, computed in float32.

A token that is decoded reads every weight once, so half the bytes are about half the time. What is stored so are the
matrices of linear layers, and tables of embeddings that are one with such a matrix (a tied head). Of other tables a
token reads one row; they, norms and biases stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from minigrad import Tensor, dtypes, nn
from minigrad.ops.stored import KINDS

Model = TypeVar("Model", bound=nn.Module)


def check_kind(weights: str) -> None:
    """Raise ValueError for a kind of stored weights that there is not."""
    if weights not in KINDS:
        raise ValueError(f"weights are stored as {' or '.join(KINDS)}, got {weights!r}")


def quantize(model: Model, weights: str) -> Model:
    """The same model, changed in place to one whose matrices are stored as `weights`, "int8" or "bfloat16".

    int8: each row times 127 / its largest value, rounded, with that factor beside it. Such a model is used, not trained
    (its matrices have no gradients); `transformer.checkpoints.save` saves it as it is. Raises ValueError for another
    kind of weights, a model on a GPU, one that is stored so already, and matrices with values that are not finite;
    TypeError for one that is not in float32 (its matrices may be in bfloat16). Then nothing has been changed.
    """
    check_kind(weights)
    if is_quantized(model):
        raise ValueError(f"the weights of this {type(model).__name__} are stored in fewer bytes already: load it again")
    places = list(_places(model))
    stored = {id(layer.weight) for _, _, _, layer in places}
    for parameter in model.parameters():
        if parameter.device != "cpu":
            raise ValueError(f"weights in {weights} are read on the CPU only: call model.cpu() first")
        half = parameter.dtype == dtypes.bfloat16 and id(parameter) in stored
        if parameter.dtype != dtypes.float32 and not half:
            raise TypeError(
                f"weights in {weights} are computed in float32, and this model is in {dtypes.name(parameter.dtype)}: "
                "call model.float() first"
            )
    made: dict[int, nn.Stored] = {}
    for path, _, _, layer in places:
        if id(layer.weight) not in made:
            try:
                made[id(layer.weight)] = nn.Stored(layer.weight, weights)
            except ValueError as error:
                raise ValueError(f"{path}.weight: {error}") from None
    replace(model, made)
    return model


def replace(model: nn.Module, made: Mapping[int, nn.Stored]) -> None:
    """Put stored matrices into the model, in the place of those with these ids."""
    for _, parent, name, layer in list(_places(model)):
        matrix = made.get(id(layer.weight))
        if matrix is None:
            continue
        if isinstance(layer, nn.Linear):
            setattr(parent, name, nn.StoredLinear(matrix, layer.bias))
        else:
            setattr(parent, name, nn.StoredEmbedding(matrix, layer.padding_idx))


def stored_in(model: nn.Module) -> dict[str, nn.Stored]:
    """The matrices that are stored in fewer bytes, by the name that the parameter had before; tied ones under each."""
    holders = (
        (path, module) for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.StoredLinear | nn.StoredEmbedding)
    )  # fmt: skip
    return {f"{path}.weight": module.matrix for path, module in holders}


def is_quantized(model: nn.Module) -> bool:
    """Has the model matrices that are stored in fewer bytes?"""
    return any(isinstance(module, nn.Stored) for module in model.modules())


def matrices(model: nn.Module) -> list[Tensor]:
    """What `quantize` would store in fewer bytes."""
    return [layer.weight for _, _, _, layer in _places(model)]


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Linear | nn.Embedding]]:
    """The layers that are replaced, linear ones and embeddings tied to them: path, who holds it, under which name."""
    held = [
        (f"{path}.{name}" if path else name, parent, name, layer)
        for path, parent in model.named_modules()
        for name, layer in parent.named_children()
    ]
    linear = {id(layer.weight) for _, _, _, layer in held if isinstance(layer, nn.Linear)}
    for path, parent, name, layer in held:
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Embedding) and id(layer.weight) in linear):
            yield path, parent, name, layer
