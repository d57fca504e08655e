"""Attention cores are found in every style of writing; correct ones give no word, and each mutant exactly its own."""

import pytest

torch = pytest.importorskip("torch")

from inside_subjects import SUBJECTS, load, mutated, run  # noqa: E402
from torch import nn  # noqa: E402

from conformance.adapters.whole.attention import attentions  # noqa: E402
from conformance.adapters.whole.attention_findings import attention_findings, samples_as_words  # noqa: E402
from conformance.adapters.whole.attention_masks import dropout_findings  # noqa: E402
from conformance.adapters.whole.record import record  # noqa: E402


def found(recorded):
    return attention_findings(attentions(recorded)) + dropout_findings(recorded)


ENCODERS = [style.__name__ for style in load(SUBJECTS / "encoders.py").STYLES]
STYLES = [*(("encoders", name) for name in ENCODERS), ("gpt", None), ("llama", None), ("translator", None)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("file", "style"), STYLES)
def test_correct_attention_is_read_whole_and_gives_no_certain_finding(file, style, training):
    recorded = run(load(SUBJECTS / f"{file}.py"), style, training)
    cores = attentions(recorded)
    assert len(cores) == {"gpt": 3, "translator": 6, "Apart": 6}.get(style or file, 2)
    for core in cores:
        assert (core.axis, core.contracted) == ("keys", "keys")
        if style != "Disentangled":  # its other products depend on the input: they are no bias
            scores = core.query.double() @ core.key.double().mT * core.scale + core.bias
            torch.testing.assert_close(scores.softmax(-1).nan_to_num(), core.weights, atol=1e-5, rtol=1e-5)
    assert [finding for finding in found(recorded) if finding.certain] == []


def test_a_cache_is_followed_through_memory():
    recorded = run(load(SUBJECTS / "llama.py"), steps=True)
    cores = attentions(recorded)
    assert [tuple(core.weights.shape) for core in cores[::2]] == [(2, 4, 3, 3), (2, 4, 1, 4), (2, 4, 1, 5)]
    assert all(core.sides["key"].mapped for core in cores)
    assert found(recorded) == []


def test_no_scale_with_a_learned_bias_is_a_note():
    [note] = found(run(load(SUBJECTS / "encoders.py"), "Relative"))
    assert (note.claim, note.certain, note.got) == ("attention-scale-is-one-over-sqrt-d-head", False, 1.0)
    assert note.place.text == "scores = torch.matmul(q, k.transpose(3, 2))"


def test_a_scale_that_is_no_known_mistake_is_a_note(tmp_path):
    line = 'scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])'
    instead = 'scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 100'
    notes = found(run(mutated(tmp_path, "encoders", "Einsum", line, instead), "Einsum"))
    assert {(note.claim, note.certain, note.place.text) for note in notes} == {(SCALE, False, instead)}


SCALE, AXIS = "attention-scale-is-one-over-sqrt-d-head", "attention-softmax-runs-over-the-keys"
HIDE, AFTER = "attention-mask-hides-completely", "attention-masks-before-the-softmax"
SPLIT, MERGE = "attention-heads-keep-tokens-apart", "attention-merges-heads-of-one-token"
OWN, GROUPS = "attention-projects-query-key-and-value-apart", "attention-groups-are-interleaved"
DIAGONAL, LOST = "attention-causal-mask-keeps-the-diagonal", "attention-uses-every-mask"
DROPS, SUM = "dropout-only-in-training", "attention-sums-values-over-the-keys"
ROW, TOKEN = "attention-stays-in-its-batch-row", "attention-key-and-value-are-of-one-token"
SHARED = "attention-heads-have-their-own-projections"
TURNS, ANGLE = "attention-rotates-queries-and-keys", "attention-rotates-by-position"
LENGTHS, DISTANCE = "attention-rotation-keeps-lengths", "attention-rotated-scores-depend-on-distance"
SLOPE = "attention-linear-bias-falls-with-distance"

# claim, file, style, line, line of the mutant (and, where the finding points elsewhere, to what)
MUTANTS = [
    (SCALE, "gpt", None, "att = att * (1.0 / math.sqrt(k.size(-1)))", "pass", "att = q @ k.transpose(-2, -1)"),
    (SCALE, "gpt", None, "att = att * (1.0 / math.sqrt(k.size(-1)))", "att = att * math.sqrt(k.size(-1))"),
    (SCALE, "gpt", None, "att = att * (1.0 / math.sqrt(k.size(-1)))", "att = att / k.size(-1)"),
    (SCALE, "gpt", None, "att = att * (1.0 / math.sqrt(k.size(-1)))", "att = att / math.sqrt(C)"),
    (SCALE, "gpt", None, "att = att * (1.0 / math.sqrt(k.size(-1)))", "att = att / math.sqrt(T)"),
    (SCALE, "gpt", None, "y = att @ v", "y = att / math.sqrt(k.size(-1)) @ v"),
    (SCALE, "translator", None, "d_k = query.size(-1)", "d_k = query.size(-1) * query.size(1)",
     "scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)"),
    (SCALE, "encoders", "SequenceFirst", "scores = torch.bmm(q, k.transpose(1, 2)).view(B, self.heads, T, T)",
     "scores = torch.bmm(q, k.transpose(1, 2)).view(B, self.heads, T, T) * (C // self.heads) ** -0.5"),
    (SCALE, "encoders", "Rotary", "scores = (q / self.d**0.25) @ (k / self.d**0.25).mT",
     "scores = (q / self.d**0.25) @ k.mT"),
    (AXIS, "gpt", None, "att = F.softmax(att, dim=-1)", "att = F.softmax(att, dim=-2)"),
    (AXIS, "gpt", None, "att = F.softmax(att, dim=-1)", "att = F.softmax(att, dim=1)"),
    (AXIS, "translator", None, "p_attn = scores.softmax(dim=-1)", "p_attn = scores.softmax(dim=0)"),
    (AXIS, "encoders", "Einsum", "probs = scores.softmax(-1)", "probs = scores.softmax(-2)"),
    (SUM, "encoders", "Rotary", "return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))",
     "return self.out((scores.softmax(-1).mT @ v).transpose(1, 2).reshape(B, T, C))"),
    (HIDE, "gpt", None, 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
     "att = att.masked_fill(self.bias[:, :, :T, :T] == 0, -10)"),
    (HIDE, "gpt", None, 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
     "att = att.masked_fill(self.bias[:, :, :T, :T] == 0, 1e-9)"),
    (HIDE, "gpt", None, 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
     "att = att * self.bias[:, :, :T, :T]"),
    (HIDE, "encoders", "Einsum", "scores = scores + (1.0 - keep[:, None, None, :].float()) * -10000.0",
     "scores = scores + (1.0 - keep[:, None, None, :].float()) * -10.0"),
    (HIDE, "encoders", "Einsum", "scores = scores + (1.0 - keep[:, None, None, :].float()) * -10000.0",
     "scores = scores + keep[:, None, None, :].float()"),
    (LOST, "gpt", None, 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
     'att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))'),
    (LOST, "translator", None, "scores = scores.masked_fill(mask == 0, -1e9)",
     "scores.masked_fill(mask == 0, -1e9)"),
    (AFTER, "encoders", "Rotary", "return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))",
     "return self.out((((q @ k.mT / self.d**0.5).softmax(-1) * keep[:, None, None]) @ v).transpose(1, 2).flatten(2))"),
    (AFTER, "encoders", "ByHand", "weights = e / e.sum(-1, keepdim=True)",
     "e = scores.exp(); weights = (e / e.sum(-1, keepdim=True)) * keep[:, None, None]"),
    (DIAGONAL, "gpt", None,
     'self.register_buffer("bias", torch.tril(torch.ones(limit, limit)).view(1, 1, limit, limit))',
     'self.register_buffer("bias", torch.tril(torch.ones(limit, limit), -1).view(1, 1, limit, limit))',
     'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))'),
    (DIAGONAL, "gpt", None, 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
     'att = att.masked_fill(self.bias[:, :, :T, :T] == 1, float("-inf"))'),
    (SPLIT, "gpt", None, "q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)",
     "q = q.reshape(B, self.heads, T, C // self.heads)"),
    (SPLIT, "translator", None,
     "value = self.linears[2](value).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)",
     "value = self.linears[2](value).view(nbatches, self.h, -1, self.d_k)"),
    (SPLIT, "encoders", "SequenceFirst", "k = self.k_proj(x).view(T, B * self.heads, -1).transpose(0, 1)",
     "k = self.k_proj(x).view(B * self.heads, T, -1)"),
    (SPLIT, "encoders", "MultiQuery", "q = q.view(B, T, self.heads, -1)",
     "q = q.reshape(B, self.heads, T, -1).transpose(1, 2)", "q = q.reshape(B, self.heads, T, -1).transpose(1, 2)"),
    (MERGE, "gpt", None, "y = y.transpose(1, 2).contiguous().view(B, T, C)", "y = y.contiguous().view(B, T, C)"),
    (MERGE, "translator", None, "x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)",
     "x = x.contiguous().view(nbatches, -1, self.h * self.d_k)"),
    (OWN, "translator", None,
     "value = self.linears[2](value).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)",
     "value = self.linears[1](value).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)"),
    (OWN, "llama", None, "xk = self.wk(x).view(B, T, self.groups, self.d)",
     "xk = self.wv(x).view(B, T, self.groups, self.d)", "xv = self.wv(x).view(B, T, self.groups, self.d)"),
    (OWN, "encoders", "Relative",
     "q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))",
     "q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.q, self.v))"),
    (OWN, "gpt", None, "y = att @ v", "y = att @ k"),
    (GROUPS, "llama", None, "keys = repeat_kv(keys, self.heads // self.groups)",
     "keys = keys.repeat(1, 1, self.heads // self.groups, 1)"),
    (GROUPS, "llama", None, "return x[:, :, :, None, :].expand(B, T, G, times, d).reshape(B, T, G * times, d)",
     "return x[:, :, None].expand(B, T, times, G, d).reshape(B, T, G * times, d)"),
    (DROPS, "gpt", None, "att = self.attn_dropout(att)", "att = F.dropout(att, self.dropout)"),
    (DROPS, "translator", None, "x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)",
     "x = nn.functional.dropout(x.transpose(1, 2).reshape(nbatches, -1, self.h * self.d_k), 0.5)"),
    (ROW, "encoders", "Alibi", "bias = bias + torch.where(keep, 0.0, -torch.inf)[:, None, None]",
     "bias = torch.where(keep, 0.0, -torch.inf)[:, None].expand(B, T, T).repeat(self.heads, 1, 1)",
     "scores = torch.baddbmm(bias.reshape(-1, T, T), q, k.mT, alpha=q.size(-1) ** -0.5)"),
    (SHARED, "encoders", "SequenceFirst", "q = self.q_proj(x) * (C // self.heads) ** -0.5",
     "q = F.linear(x.reshape(T, B * self.heads, -1), self.q_proj.weight[:6, :6]) * (C // self.heads) ** -0.5"),
    (TURNS, "encoders", "Rotary", "q, k = self.turn(self.q_norm(q)), self.turn(self.k_norm(k))",
     "q, k = self.turn(self.q_norm(q)), self.k_norm(k)"),
    (TURNS, "encoders", "Rotary", "q, k = self.turn(self.q_norm(q)), self.turn(self.k_norm(k))",
     "q, k = self.q_norm(q), self.turn(self.k_norm(k))"),
    (LENGTHS, "encoders", "Rotary", "return x * cos + torch.cat((-second, first), -1) * sin",
     "return x * cos + torch.cat((second, first), -1) * sin"),
    (LENGTHS, "encoders", "Rotary", "cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))",
     "cos, sin = (f(angles).repeat_interleave(2, -1) for f in (torch.cos, torch.sin))",
     "return x * cos + torch.cat((-second, first), -1) * sin"),
    (DISTANCE, "llama", None, "xq, xk = rotate(xq, turns), rotate(xk, turns)",
     "xq, xk = rotate(xq, turns), rotate(xk, turns.conj())"),
    (TURNS, "llama", None, "xq, xk = rotate(xq, turns), rotate(xk, turns)", "xq = rotate(xq, turns)"),
    (ANGLE, "encoders", "Rotary",
     "angles = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(self.d // 2) / (self.d // 2))",
     "angles = torch.zeros(x.shape[-2])[:, None] / 100 ** (torch.arange(self.d // 2) / (self.d // 2))",
     "return x * cos + torch.cat((-second, first), -1) * sin"),
    (ANGLE, "llama", None, "h = layer(h, start, self.turns[start : start + T], mask)",
     "h = layer(h, start, self.turns[3:4].expand(T, -1), mask)",
     "return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)"),
    (SLOPE, "encoders", "Alibi",
     "bias = -slopes[:, None, None] * (torch.arange(T)[None] - torch.arange(T)[:, None]).abs()",
     "bias = slopes[:, None, None] * (torch.arange(T)[None] - torch.arange(T)[:, None]).abs()"),
    (SLOPE, "encoders", "MultiQuery", "scores = scores - self.slopes[:, None, None] * distance",
     "scores = scores + self.slopes[:, None, None] * distance"),
    (TOKEN, "translator", None, "x = self.norm2(x + self.dropout(self.src_attn(x, memory, memory, src_mask)))",
     "x = self.norm2(x + self.dropout(self.src_attn(x, memory, x, None)))",
     "value = self.linears[2](value).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant[1]}-{mutant[0]}-{mutant[4][:40]}")
def test_a_mutant_gives_exactly_its_finding_at_its_line(mutant, tmp_path):
    claim, file, style, line, instead, *where = mutant
    module = mutated(tmp_path, file, style, line, instead)
    if claim == TOKEN:  # as many source as target tokens, else the mistake raises
        subject = module.subject

        def square():
            model, (src, tgt) = subject()
            return model, (src[:, : tgt.shape[1]], tgt)

        module.subject = square
    certain = [finding for finding in found(run(module, style)) if finding.certain]
    assert {finding.claim for finding in certain} == {claim}
    texts = {finding.place.text for finding in certain}
    assert texts == {(where or [instead])[0]}
    assert all(finding.sentence and finding.mend and finding.paths for finding in certain)


class Copies(nn.Module):
    """The states of a stack are copied by weights, as a pointer does, without a projection of their own."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        states = self.encoder(x)
        return (self.query(x) @ self.key(states).transpose(1, 2) / 8**0.5).softmax(-1) @ states


def test_values_that_are_sums_of_a_stack_s_states_are_not_mixed_up():
    torch.manual_seed(0)
    model, x = Copies().eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        recorded = record(model, lambda: model(x))
    assert [finding.claim for finding in attention_findings(attentions(recorded)) if finding.certain] == []


def test_groups_of_a_product_whose_weights_meet_in_one_have_no_order():
    from conformance.adapters.whole.attention import _heads

    rows = torch.arange(3 * 2 * 2).reshape(3, 2, 2)
    order = _heads(rows[torch.tensor([2, 0, 1])], (3, 2, 2), "columns")
    assert order is not None
    assert order.tolist() == [1, 2, 0]
    assert _heads(rows[torch.tensor([2, 0, 0])], (3, 2, 2), "columns") is None


class OfTorch(nn.Module):
    """torch's attention, of samples first, or of words first."""

    def __init__(self, batch_first, turned):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.turned = turned

    def forward(self, x):
        x = x.transpose(0, 1) if self.turned else x
        return self.attn(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize(("batch_first", "turned", "is_wrong"), [(True, False, 0), (False, True, 0), (False, False, 1)])
def test_samples_are_not_taken_for_words(batch_first, turned, is_wrong):
    model = OfTorch(batch_first, turned)
    [core] = attentions(record(model, lambda: model(torch.randn(3, 5, 8))))
    notes = list(samples_as_words(core))
    assert [one.claim for one in notes] == [ROW] * is_wrong
    assert all("self.attn = nn.MultiheadAttention" in one.place.text for one in notes)
    [square] = attentions(record(model, lambda: model(torch.randn(3, 3, 8))))
    assert list(samples_as_words(square)) == []  # which axis is which cannot be told
