"""Components that cannot be called by themselves are taken out of a model of the user's that holds them."""

import sys

import pytest

torch = pytest.importorskip("torch")

from wholes import pointed  # noqa: E402

from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.gradient_probes import Overwritten, go_back  # noqa: E402

BLOCK = """
    import torch
    from torch import nn


    class Rows(nn.Module):
        '''Mixes the places of a picture by rows. Its model says how high and wide it is.'''

        def __init__(self, dim):
            super().__init__()
            self.norm = nn.LayerNorm(dim)
            self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)

        def forward(self, x, shift):
            b, _, d = x.shape
            h, w = self.height, self.width
            rows = torch.roll(self.norm(x).reshape(b, h, w, d), shift, 2).reshape(b * h, w, d)
            mixed = self.attn(rows, rows, rows, need_weights=False)[0].reshape(b, h, w, d)
            return x + torch.roll(mixed, -shift, 2).reshape(b, h * w, d)
"""
MODEL = """
    import torch
    from torch import nn
    from rows_of_pictures import Rows


    class Stage(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.blocks = nn.ModuleList([Rows(dim) for _ in range(2)])

        def forward(self, x, h, w):
            for i, block in enumerate(self.blocks):
                block.height, block.width = h, w
                x = block(x, i)
            return x


    class Painter(nn.Module):
        def __init__(self, dim=8, classes=5):
            super().__init__()
            self.patches = nn.Conv2d(3, dim, 4, 4)
            self.places = nn.Parameter(torch.randn(1, 64, dim))
            self.stage = Stage(dim)
            self.head = nn.Linear(dim, classes)

        def forward(self, images):
            x = self.patches(images)
            h, w = x.shape[-2:]
            x = x.flatten(2).transpose(1, 2)
            return self.head(self.stage(x + self.places[:, : h * w], h, w).mean(1))
"""


def beside(made, model):
    """The component in its file, with the model's text in the file beside it."""
    made("Rows", BLOCK, {"painter.py": model}, "rows_of_pictures.py")
    return pointed(sys.modules["rows_of_pictures"].Rows)


def test_a_part_that_its_model_sets_up_runs_as_the_model_calls_it(made):
    found = beside(made, MODEL)
    facts = {fact.subject: str(fact.value) for fact in found.running.facts}
    assert facts["taken from"] == "Painter, stage.blocks.0"
    assert found.untested == []
    out = found.build("module", {})
    data = out.example(3)
    assert out(**data)["out"].shape == data["x"].shape


def test_of_a_file_that_does_more_than_define_only_the_definitions_run(made, tmp_path):
    found = beside(made, f"{MODEL}\n    written = open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert {fact.subject: str(fact.value) for fact in found.running.facts}["taken from"] == "Painter, stage.blocks.0"
    assert not (tmp_path / "ran").exists()


def test_a_file_that_works_is_not_imported_for_the_definitions_of_another(made, tmp_path):
    works = f"""
    open({str(tmp_path / "ran")!r}, "w").close()


    def helper():
        return None
    """
    model = f"{MODEL}\n    from file_that_works import helper\n    print(helper)\n"
    made("Rows", BLOCK, {"painter.py": model, "file_that_works.py": works}, "rows_of_pictures.py")
    found = pointed(sys.modules["rows_of_pictures"].Rows)
    assert {fact.subject: str(fact.value) for fact in found.running.facts}["taken from"] == "Painter, stage.blocks.0"
    assert not (tmp_path / "ran").exists()


def test_a_class_of_layers_that_are_handed_in_is_taken_from_what_makes_them(made):
    made(
        "Stack",
        """
    from torch import nn


    class Stack(nn.Module):
        def __init__(self, layers: nn.ModuleList):
            super().__init__()
            self.layers = layers
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return self.norm(x)
        """,
        {
            "putting_it_together.py": """
    from torch import nn
    from stack_of_layers import Stack

    print("this file says something")


    class Reader(nn.Module):
        def __init__(self, embedding, stack, head):
            super().__init__()
            self.embedding, self.stack, self.head = embedding, stack, head

        def forward(self, ids):
            return self.head(self.stack(self.embedding(ids)))


    def build(vocab_size, n_layers=2):
        layers = []
        for _ in range(n_layers):
            layers.append(nn.Sequential(nn.Linear(16, 16), nn.GELU()))
        return Reader(nn.Embedding(vocab_size, 16), Stack(nn.ModuleList(layers)), nn.Linear(16, vocab_size))
            """
        },
        "stack_of_layers.py",
    )
    found = pointed(sys.modules["stack_of_layers"].Stack)
    assert {fact.subject: str(fact.value) for fact in found.running.facts}["taken from"] == "build, stack"
    assert found.untested == []


def test_a_file_that_cannot_be_imported_is_passed_over(made):
    with pytest.raises(Unresolved, match="Rows cannot be called"):
        beside(made, f"{MODEL}\n    import a_module_that_nobody_has\n")


def test_a_model_that_does_not_call_it_is_none(made):
    with pytest.raises(Unresolved, match="Rows cannot be called"):
        beside(made, MODEL.replace("x = block(x, i)", "x = x + 0 * i"))


READER = """
    import torch
    from torch import nn


    class Reader(nn.Module):
        '''Reads what is beside it. Its model says how many words that has.'''

        def __init__(self, dim):
            super().__init__()
            self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)

        def forward(self, y, beside):
            beside = beside.reshape(len(y), self.words, -1)
            return y + self.attn(y, beside, beside, need_weights=False)[0]
"""
TOLD = """
    import torch
    from reader_of_two import Reader
    from torch import nn


    class Told(nn.Module):
        def __init__(self, n_words=20, dim=8):
            super().__init__()
            self.embed = nn.Embedding(n_words, dim)
            self.reader = Reader(dim)
            self.head = nn.Linear(dim, n_words)

        def forward(self, ids):
            x = self.embed(ids)
            self.reader.words = ids.shape[1]
            return self.head(self.reader(x, x.flatten(1)))
"""


def test_a_row_alone_is_given_what_stands_beside_it_among_others(made):
    made("Reader", READER, {"told.py": TOLD}, "reader_of_two.py")
    running = pointed(sys.modules["reader_of_two"].Reader).running
    assert "taken from" in {fact.subject for fact in running.facts}
    data = running.example()
    together, alone = running.run(data)["out"], [running.run({"x": row[None]})["out"][0] for row in data["x"]]
    assert all(abs(one - other).max() < 1e-9 for one, other in zip(together, alone, strict=True))


HEARD = """
    import torch
    from stage_of_sound import Stage
    from torch import nn


    class Listener(nn.Module):
        def __init__(self, n_words=20, dim=8):
            super().__init__()
            self.embed, self.shorten = nn.Embedding(n_words, dim), nn.Conv1d(dim, dim, 2, 2)
            self.stage = Stage(dim)
            self.head = nn.Linear(dim, 5)

        def forward(self, ids):
            x = self.shorten(self.embed(ids).transpose(1, 2)).transpose(1, 2)
            self.stage.words = x.shape[1]
            return self.head(self.stage(x, x.flatten(1)).mean(1))
"""


def test_a_part_of_what_shortens_its_input_gets_more_than_a_step_or_two(made):
    made("Stage", READER.replace("Reader", "Stage"), {"listener.py": HEARD}, "stage_of_sound.py")
    running = pointed(sys.modules["stage_of_sound"].Stage).running
    assert "taken from" in {fact.subject for fact in running.facts}
    assert running.example()["x"].shape[1] >= 6


STACK = """
    import torch
    from torch import nn


    class Layer(nn.Module):
        def __init__(self, attention, width):
            super().__init__()
            self.attention, self.norm = attention, nn.LayerNorm(width)

        def forward(self, x, memory):
            return self.norm(x + self.attention(x, memory, memory)[0])


    class Stack(nn.Module):
        def __init__(self, features, layers):
            super().__init__()
            self.layers, self.norm = layers, nn.LayerNorm(features)

        def forward(self, x, memory):
            for layer in self.layers:
                x = layer(x, memory)
            return self.norm(x)


    class Net(nn.Module):
        def __init__(self, table, stack, head):
            super().__init__()
            self.table, self.stack, self.head = table, stack, head

        def forward(self, ids):
            x = self.table(ids)
            return self.head(self.stack(x, x))
"""
BUILDER = """
    from stack import Layer, Net, Stack
    from torch import nn


    def build_net(vocab_size, d_model=16, n_layers=2):
        layers = []
        for _ in range(n_layers):
            layers.append(Layer(nn.MultiheadAttention(d_model, 2, batch_first=True), d_model))
        stack = Stack(d_model, nn.ModuleList(layers))
        return Net(nn.Embedding(vocab_size, d_model), stack, nn.Linear(d_model, vocab_size))
"""


def test_a_function_that_trains_is_not_run_for_a_part_of_what_it_makes(made, tmp_path):
    ran = f"open({str(tmp_path / 'ran')!r}, 'w')"
    made("Layer", STACK, {"builder.py": BUILDER.replace("layers = []", f"layers = []\n        {ran}")}, "stack.py")
    with pytest.raises(Unresolved):
        pointed(sys.modules["stack"].Stack)
    assert not (tmp_path / "ran").exists()


def test_a_stack_of_layers_that_a_function_of_another_file_makes_is_taken_from_what_it_makes(made):
    made("Layer", STACK, {"builder.py": BUILDER}, "stack.py")
    running = pointed(sys.modules["stack"].Stack).running
    facts = {fact.subject: str(fact.value) for fact in running.facts}
    assert facts["taken from"] == "build_net, stack"
    assert "attention" in running.inside().seen


class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("out of memory")


def test_what_else_a_way_back_raises_is_its_own_error():
    with pytest.raises(RuntimeError, match="out of memory"):
        go_back(Refusing.apply(torch.ones(2, requires_grad=True)).sum())
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(Overwritten, match="written over in place"):
        go_back(y.sum())
