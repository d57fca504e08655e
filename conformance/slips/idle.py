"""Slips of what is made and never read, that the text of a file shows by itself: masks that a loss is handed, parts of
a batch, masks that a batch holds or that a function makes, masks that are handed on in training alone, tables that a
model keeps, and the mode of a layer that drops."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import Found, Slip, assigned, called, calls, functions, unparse, walk

# --- masks and parts of batches -------------------------------------------------------------------


_MASKS = re.compile(r"(\w+_)?(mask|valid|ok|observed|seen|known|present|is_real|not_pad)(_\w+)?")


def masks_never_read(tree: ast.AST) -> Found:
    """Where a loss must be handed a mask and does not read it."""
    for function in getattr(tree, "body", ()):
        if not isinstance(function, ast.FunctionDef) or not re.search(
            r"loss|pinball|nll|mse|mae|huber|(^|_)b?ce(_|$)", function.name, re.I
        ):
            continue
        required = function.args.args[: len(function.args.args) - len(function.args.defaults)]
        read = {one.id for one in walk(function) if isinstance(one, ast.Name)}
        written = [one for one in function.body if not isinstance(one, ast.Expr | ast.Raise | ast.Pass)]
        for argument in required if written else ():
            name = argument.arg
            is_mask = (
                re.fullmatch(r"(\w+_)?(mask|valid|ok|observed|seen|known|present|is_real|not_pad)(_\w+)?", name)
                is not None
            )
            if is_mask and name not in read:
                yield f"{function.name}({', '.join(one.arg for one in function.args.args)})", function


_APART = re.compile(r"(\w+_)?(segs?|segments?|doc(ument)?s?|masks?|padding|valid)(_(ids?|mask))?", re.IGNORECASE)


def parts_never_read(tree: ast.AST) -> Found:
    """Where a batch is taken apart, one of its parts says what belongs together or is padding, and the function, which
    runs the model, does not read it."""
    for function in functions(tree):
        read = {one.id for one in walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        runs = any(re.fullmatch(r"(self\.)?(model|net|encoder)", unparse(one.func)) for one in calls(function))
        for node in walk(function) if runs else ():
            for to, given in assigned(node):
                parts = to.elts if isinstance(to, ast.Tuple) and re.fullmatch(r"\w*batch", unparse(given)) else []
                names = [one.id for one in parts if isinstance(one, ast.Name)]
                for name in names:
                    if _APART.fullmatch(name) and name not in read:
                        yield f"{name} of {unparse(given)}", node


_MAKES = re.compile(r"\w*(collate|batch|pad|__getitem__|__call__|encode|tokenize|featurize)\w*", re.IGNORECASE)
_HIDES = re.compile(r"(\w+_)?(attention_mask|pad(ding)?_mask|attn_mask|mask)", re.IGNORECASE)
_HANDS_ON = re.compile(r"Trainer\(|\*\*\w*(batch|inputs?|enc\w*|feat\w*|data|kw\w*)\b|\*\w+\.values\(\)")
_TELLS_PADDING = re.compile(r"(!=|==) [\w.]*pad|\.(ne|eq)\(", re.IGNORECASE)


def masks_made_in_vain(tree: ast.AST) -> Found:
    """Where what makes batches puts a mask of padding into a mapping under a key that is written nowhere else, and the
    model, which finds no padding itself, is given other keys. Where lengths stand beside it, they may tell the
    padding."""
    text = unparse(tree)
    classes = [one for one in walk(tree) if isinstance(one, ast.ClassDef)]
    if _HANDS_ON.search(text) or any(_TELLS_PADDING.search(unparse(one)) for one in classes):
        return
    words = [one.value for one in walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    named = {one.attr for one in walk(tree) if isinstance(one, ast.Attribute) and unparse(one.value) != "self"}
    named |= {one.arg for one in walk(tree) if isinstance(one, ast.keyword) and one.arg}
    given = [one for call in calls(tree) if re.fullmatch(r"(self\.)?(model|net|encoder)", unparse(call.func))
             for one in call.args]  # fmt: skip
    if any(re.search(r"mask|[=!]=", unparse(one)) for one in given):
        return
    asked = {one.slice.value for arg in given for one in walk(arg)
             if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant)}  # fmt: skip
    for function in functions(tree):
        for node in walk(function) if _MAKES.fullmatch(function.name) else ():
            held = node.keys if isinstance(node, ast.Dict) else []
            keys = [str(one.value) for one in held if isinstance(one, ast.Constant)]
            is_asked = any(key in asked for key in keys) and not any("len" in key for key in keys)
            for key in keys:
                if is_asked and _HIDES.fullmatch(key) and words.count(key) == 1 and key not in named:
                    yield f"{key!r} of {function.name}", node


# --- masks that a function makes ------------------------------------------------------------------

_OF_PAIRS = re.compile(r"None[\],][^=]*[=!]= ?\w|tril\(|triu\(|unsqueeze\([^=]*[=!]=")


def masks_that_stay(tree: ast.AST) -> Found:
    """Where a function makes a mask of pairs, of words that belong together or of those before, and reads it not."""
    for function in functions(tree):
        read = {one.id for one in walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        for node in walk(function):
            for to, given in assigned(node):
                stays = isinstance(to, ast.Name) and to.id not in read and not to.id.startswith("_")
                if stays and _OF_PAIRS.search(unparse(given)):
                    yield unparse(node), node


# --- masks that are handed on in training alone ---------------------------------------------------


def masks_left_out_in_writing(tree: ast.AST) -> Found:
    """Where forward hands a mask on to another method, and a method that writes makes that mask, reads it nowhere, and
    hands on None in its place."""
    for cls in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        methods = {one.name: one for one in cls.body if isinstance(one, ast.FunctionDef)}
        handed = {
            (unparse(call.func), at)
            for call in (calls(methods["forward"]) if "forward" in methods else ())
            for at, given in enumerate(call.args)
            if _OF_PADDING.search(unparse(given))
        }
        for method in (one for name, one in methods.items() if name != "forward"):
            made = {
                unparse(one) for node in walk(method) for to, _ in assigned(node) for one in walk(to) if _is_mask(one)
            }
            idle = [name for name in made if not any(_is_mask(one, name) for one in walk(method))]
            for call in calls(method) if idle else ():
                for at, given in enumerate(call.args):
                    if (unparse(call.func), at) in handed and unparse(given) == "None":
                        yield unparse(call), call


_OF_PADDING = re.compile(r"mask|pad", re.IGNORECASE)


def _is_mask(node: ast.AST, name: str = "") -> bool:
    """Whether it is a name of a mask; with one, whether it is read."""
    if not isinstance(node, ast.Name) or not _OF_PADDING.search(node.id):
        return False
    return not name or (node.id == name and isinstance(node.ctx, ast.Load))


# --- tables that a model keeps --------------------------------------------------------------------


def tables_never_read(tree: ast.AST) -> Found:
    """Where a model registers a buffer of what its constructor makes, and nothing in the file reads it."""
    text = unparse(tree)
    for node in calls(tree):
        if unparse(node.func) != "self.register_buffer" or len(node.args) < 2:
            continue
        name = str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""
        rest = text.replace(unparse(node), "", 1)
        is_alias = unparse(node.args[1]).startswith("self.")  # it is read by its other name
        kept = re.search(rf"self\.\w+ = {re.escape(unparse(node.args[1]))}\n", rest)
        if name and not is_alias and not kept and not re.search(rf"\.{name}\b|['\"]{name}['\"]", rest):
            yield unparse(node), node


_DROPS = re.compile(r"\w*(Drop(Path|Block|out|Connect|Key|Token|Layer)|StochasticDepth|LayerDrop)\w*")
_DRAWS = re.compile(r"\b(rand|rand_like|bernoulli|bernoulli_)\(")


def modes_never_read(tree: ast.AST) -> Found:
    """Where a class that is called after dropping draws random numbers in its forward, and neither it nor whoever calls
    it asks whether it is in training."""
    tests = [one for one in walk(tree) if isinstance(one, ast.If | ast.IfExp) and "training" in unparse(one.test)]
    asked = " ".join(unparse(one) for one in tests).lower()
    for cls in (one for one in walk(tree) if isinstance(one, ast.ClassDef) and _DROPS.fullmatch(one.name)):
        text = unparse(cls)
        forward = next((one for one in functions(cls) if one.name == "forward"), None)
        is_module = any("Module" in unparse(one) for one in cls.bases)
        if forward is None or not is_module or "training" in text or "drop" in asked:
            continue
        drawn = next((one for one in calls(forward) if _DRAWS.search(f"{called(one)}(")), None)
        if drawn is not None:
            yield f"{cls.name}: {unparse(drawn)}", drawn


APART = Slip(
    rule=parts_never_read,
    asked="what says which words of a batch belong together, or are padding",
    expected="handed on",
    got="never read",
    sentence="The batch says which words belong together, or are padding, and nothing reads that: they see each other.",
    mend="hand it to the model",
    nothing="no part of a batch was seen that says what belongs together, and is not read",
)
UNREAD = Slip(
    rule=masks_never_read,
    asked="the mask that a loss is handed",
    expected="read",
    got="never read",
    sentence="The loss must be handed a mask, and never reads it: what it should leave out counts.",
    mend="(loss * mask).sum() / mask.sum()",
    nothing="no loss was seen that must be handed a mask and does not read it",
)
VAIN = Slip(
    rule=masks_made_in_vain,
    asked="the mask of padding that a batch holds",
    expected="handed on",
    got="never read",
    sentence="The batch holds a mask of its padding under a key that nothing reads: padding is attended to.",
    mend='model(batch["input_ids"], batch["attention_mask"])',
    nothing="no mask was seen that a batch holds and nothing reads",
    is_of_all=True,
)
STAYS = Slip(
    rule=masks_that_stay,
    asked="a mask of pairs that a function makes",
    expected="read",
    got="never read",
    sentence="A mask of pairs is made and never read: what it should keep apart sees each other.",
    mend="allowed = causal & same_text",
    nothing="no mask of pairs was seen that is made and never read",
)
BUFFERS = Slip(
    rule=tables_never_read,
    asked="a table that a model keeps",
    expected="read",
    got="never read",
    sentence="The model keeps a table that nothing reads: what it was made for is left out.",
    mend="use it in forward, or do not make it",
    nothing="no table was seen that a model keeps and nothing reads",
    is_of_all=True,
)

LEFT_OUT_IN_WRITING = Slip(
    rule=masks_left_out_in_writing,
    asked="the mask of padding that is handed on where the model writes",
    expected="the one that forward hands on",
    got="None, and the mask that was made is read nowhere",
    sentence="The mask of padding is handed on in training and left out in writing: what is written minds the padding.",
    mend="hand the mask on, as forward does",
    nothing="no mask was seen that is handed on in training alone",
)
MODES = Slip(
    rule=modes_never_read,
    asked="when a layer drops",
    expected="in training alone",
    got="always: it never reads self.training",
    sentence="A layer that drops never asks whether it is in training: each evaluation goes through another, thinned "
    "network.",
    mend="if not self.training: return x",
    nothing="no layer was seen that drops in evaluation, too",
)
