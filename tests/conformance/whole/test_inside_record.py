"""A record is what happened: values by their time, lines, calls; any part can run again; nothing is left behind."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from conformance.adapters.whole.record import Place, record  # noqa: E402


class Written(nn.Module):
    """Writes into memory that views show."""

    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.zeros(4, 8))

    def forward(self, x):
        self.memory[1:3] = x
        early = self.memory[:, :3]
        first = early * 1
        self.memory.add_(1)
        return first.sum() + self.memory[1] * early[1, 0] + self.memory.view(-1)[8:16]


def test_a_replay_follows_writes_through_views():
    torch.manual_seed(0)
    model, x, other = Written(), torch.randn(2, 8), torch.randn(2, 8)
    recorded = record(model, lambda: model(x))
    [given], [gave] = recorded.calls[0].given, recorded.calls[0].gave
    [again] = recorded.replay([gave], {given: other})
    model.memory.zero_()
    torch.testing.assert_close(again, model(other))
    assert recorded.reaches(given, gave)
    assert not recorded.reaches(gave, given)


def test_a_value_keeps_its_numbers_when_its_memory_is_written():
    x = torch.zeros(3)

    class Adds(nn.Module):
        def forward(self, x):
            y = x + 1
            z = y * 1
            y.mul_(5)
            return y, z

    recorded = record(Adds(), lambda: recorded_call(x))
    by_name = {op.name: op.outputs[0].data.tolist() for op in recorded.ops}
    assert by_name == {"add": [1, 1, 1], "mul": [1, 1, 1], "mul_": [5, 5, 5]}


def recorded_call(x):
    y = x + 1
    _ = y * 1
    return y.mul_(5)


def test_an_operation_knows_its_line_and_its_module():
    class Inner(nn.Module):
        def forward(self, x):
            return F.relu(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x) + 1

    model = Outer()
    recorded = record(model, lambda: model(torch.ones(2)))
    relu = next(op for op in recorded.ops if op.name == "relu")
    add = next(op for op in recorded.ops if op.name == "add")
    assert isinstance(relu.place, Place)
    assert (relu.place.text, add.place.text) == ("return F.relu(x)", "return self.inner(x) + 1")
    assert recorded.call_of(relu).path == "inner"
    assert recorded.call_of(relu).caller.text == "return self.inner(x) + 1"
    assert [call.path for call in recorded.around(recorded.call_of(relu))] == ["inner", ""]
    assert recorded.consumers(relu.outputs[0]) == [add]
    assert recorded.producer(relu.outputs[0]) is relu


def test_inference_mode_and_fused_attention_are_seen_in_their_parts():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        recorded = record(layer, lambda: layer(x))
    names = {op.name for op in recorded.ops}
    assert "bmm" in names
    assert not names & {"linear", "_transformer_encoder_layer_fwd", "_native_multi_head_attention", "baddbmm"}


def test_nothing_is_left_on_the_module_even_when_it_raises():
    class Raises(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Linear(2, 2)

        def forward(self, x):
            return self.part(x).view(7)

    model = Raises()
    fast = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError, match="invalid for input"):
        record(model, lambda: model(torch.ones(2, 2)))
    assert torch.backends.mha.get_fastpath_enabled() == fast
    for module in model.modules():
        hooks = [module._forward_hooks, module._forward_pre_hooks, module._forward_hooks_with_kwargs]
        assert not any(hooks)


def test_a_record_is_freed_without_the_collector():
    model = nn.Linear(2, 2)
    gc.disable()
    try:
        recorded = record(model, lambda: model(torch.ones(1, 2)))
        gone = weakref.ref(recorded)
        del recorded
        assert gone() is None
    finally:
        gc.enable()


def test_what_depends_on_the_input_is_known():
    model = nn.Linear(2, 3)
    recorded = record(model, lambda: model(torch.ones(1, 2)))
    weight = next(value for value in recorded.values if value.name == "weight")
    assert (weight.kind, recorded.computed(weight)) == ("parameter", False)
    assert recorded.computed(recorded.calls[0].gave[0])
    assert recorded.outcomes == set(recorded.calls[0].gave)
