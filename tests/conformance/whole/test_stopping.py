"""Early stopping in many forms: what counts in a row and keeps a copy is right, what adds up or follows is not."""

import importlib.util
import sys
from textwrap import dedent, indent

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers.stopping import AS_IT_WAS, IN_A_ROW, is_stopper, stopped
from conformance.adapters.loading import writing_no_bytecode


@pytest.fixture
def found(tmp_path):
    """found(text): of the classes and functions of a file with this text, what is said: the claim and True, False, or
    "note"."""

    def made(text):
        path = tmp_path / "stoppers_of_a_test.py"
        path.write_text("import copy, math\nimport torch\n\n" + dedent(text))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with writing_no_bytecode():
            spec.loader.exec_module(module)
        ours = [one for one in vars(module).values() if getattr(one, "__module__", "") == path.stem]
        said = list(stopped([one for one in ours if is_stopper(one)]))
        assert all(one.place and one.mend for one in said if one.trouble)
        return {one.claim: True if one.trouble is None else _certain(one.trouble) for one in said}

    yield made
    sys.modules.pop("stoppers_of_a_test", None)


def _certain(trouble):
    return False if trouble.certain else "note"


RETURNS = """
    class EarlyStopper:
        def __init__(self, patience=1, min_delta=0):
            self.patience, self.min_delta, self.counter, self.min_loss = patience, min_delta, 0, float("inf")

        def early_stop(self, validation_loss):
            if validation_loss < self.min_loss:
                self.min_loss = validation_loss
                self.counter = 0
            elif validation_loss > (self.min_loss + self.min_delta):
                self.counter += 1
                if self.counter >= self.patience:
                    return True
            return False
"""
CALLED = """
    class EarlyStopping:
        def __init__(self, patience=7, verbose=False, delta=0, path="checkpoint.pt", trace_func=print):
            self.patience, self.verbose, self.counter, self.best_score = patience, verbose, 0, None
            self.early_stop, self.val_loss_min, self.delta = False, math.inf, delta
            self.path, self.trace_func = path, trace_func

        def __call__(self, val_loss, model):
            score = -val_loss
            if self.best_score is None:
                self.best_score = score
                self.save_checkpoint(val_loss, model)
            elif score < self.best_score + self.delta:
                self.counter += 1
                self.trace_func(f"counter: {self.counter}")
                if self.counter >= self.patience:
                    self.early_stop = True
            else:
                self.best_score = score
                self.save_checkpoint(val_loss, model)
                self.counter = 0

        def save_checkpoint(self, val_loss, model):
            torch.save(model.state_dict(), self.path)
            self.val_loss_min = val_loss
"""
ACCURACY = """
    class Patience:
        def __init__(self, patience, min_epochs=10):
            self.patience, self.min_epochs, self.best, self.epoch, self.best_epoch = patience, min_epochs, None, 0, 0
            self.best_weights = None

        def update(self, acc, model, epoch):
            self.epoch += 1
            better = self.best is None or acc > self.best
            if better:
                self.best, self.best_epoch = acc, self.epoch
                self.best_weights = copy.deepcopy(model.state_dict())
            return better

        @property
        def should_stop(self):
            return self.epoch >= self.min_epochs and self.epoch - self.best_epoch >= self.patience
"""
COPY = "copy.deepcopy(model.state_dict())"
KEPT = {IN_A_ROW: True}
FORMS = {
    "returns": (RETURNS, "", "", KEPT),
    "returns, never 0 again": (RETURNS, "self.counter = 0\n", "pass\n", {IN_A_ROW: False}),
    "an attribute": (CALLED, "", "", KEPT),
    "an attribute, never 0 again": (CALLED, "self.counter = 0\n\n", "pass\n\n", {IN_A_ROW: False}),
    "a property": (ACCURACY, "", "", KEPT | {AS_IT_WAS: True}),
    "the state itself": (ACCURACY, COPY, "model.state_dict()", KEPT | {AS_IT_WAS: False}),
    "the model itself": (ACCURACY, COPY, "model", KEPT | {AS_IT_WAS: False}),
    "the parameters": (ACCURACY, COPY, "[p.data for p in model.parameters()]",
                       KEPT | {AS_IT_WAS: False}),
    "a state on the CPU": (ACCURACY, COPY,
                           "{k: v.cpu() for k, v in model.state_dict().items()}", KEPT | {AS_IT_WAS: "note"}),
    "a state for a file": (ACCURACY, COPY,
                           "model.state_dict()\n" + 12 * " " + "    torch.save(self.best_weights, 'best.pt')", KEPT),
    "it counts all on purpose": (RETURNS, "class EarlyStopper:\n",
                                 'class EarlyStopper:\n        """After `patience` bad epochs in total."""\n', {}),
    "the one before": (RETURNS, "self.counter += 1\n",
                       "self.counter, self.min_loss = self.counter + 1, validation_loss\n", KEPT),
}  # fmt: skip
FUNCTIONS = {
    "a history": ("def should_stop(history, patience):\n"
                  "    return len(history) > patience and min(history[-patience:]) > min(history[:-patience])\n", KEPT),
    "a history of rises": ("def should_stop(val_losses, patience):\n"
                           "    ups = sum(b > a for a, b in zip(val_losses, val_losses[1:]))\n"
                           "    return ups >= patience\n", {IN_A_ROW: False}),
    "a closure": ("def stopper(patience):\n    best, bad = math.inf, 0\n    def told(loss):\n"
                  "        nonlocal best, bad\n"
                  "        best, bad = (loss, 0) if loss < best else (best, bad + 1)\n        return bad >= patience\n"
                  "    return told\n", KEPT),
    "something that trains": ("def train_early_stop(model, data, patience):\n    raise SystemExit\n", {}),
    "a plateau of rates": ("def on_plateau(net, patience):\n    def step(x):\n        return x\n    return step\n", {}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_classes_that_stop_early(found, form):
    text, old, new, expected = FORMS[form]
    assert old in text
    assert found(text.replace(old, new) if old else text) == expected


@pytest.mark.parametrize("form", FUNCTIONS)
def test_functions_that_stop_early(found, form):
    text, expected = FUNCTIONS[form]
    assert found(indent(text, "    ")) == expected


MAKES_A_FOLDER = CALLED.replace(
    "self.path, self.trace_func = path, trace_func",
    "self.path, self.trace_func = path, trace_func\n            os.makedirs('kept', exist_ok=True)",
)


def test_no_folder_is_made_and_what_writes_texts_is_not_run(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "os.makedirs" in MAKES_A_FOLDER
    assert found("import os\n" + dedent(MAKES_A_FOLDER))[IN_A_ROW] is True
    assert not (tmp_path / "kept").exists()
    writes = MAKES_A_FOLDER.replace("os.makedirs('kept', exist_ok=True)", "Path('log').write_text('x')")
    assert found("from pathlib import Path\n" + dedent(writes)) == {}
    assert not (tmp_path / "log").exists()
