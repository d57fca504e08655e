"""Functions beside a model: which are tested, what is said of a wrong one, and what is left alone."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.adapters import resolve
from conformance.adapters.helpers import evaluating, neighbours
from conformance.adapters.helpers.examining import examine
from conformance.adapters.helpers.training import RULES
from conformance.check import CHECKS
from conformance.kills import KILLED, SURVIVED, outcome
from conformance.mutants import MUTANTS
from conformance.mutants.source import HELPERS, SCORES, SourceMutant
from conformance.mutated import implementation_of, specimen_as_it_is

NEED_A_MODEL = {*RULES, neighbours.CLAIM, evaluating.CLAIM, evaluating.MODE}  # the specimen trained.py has one
CLAIMS = sorted(claim for claim, check in CHECKS.items() if check.roles == ("helpers",) and claim not in NEED_A_MODEL)
MINE = sorted(name for name, m in MUTANTS.items() if isinstance(m, SourceMutant) and m.specimen in (HELPERS, SCORES))


def test_correct_helpers_break_nothing_and_each_kind_has_one():
    both = [specimen_as_it_is(one) for one in (HELPERS, SCORES)]
    found = {claim: {outcome(claim, one) for one in both} for claim in CLAIMS}
    assert [claim for claim, each in found.items() if SURVIVED not in each or KILLED in each] == []


def test_every_kind_has_a_mutant():
    assert sorted(set(CLAIMS) - {claim for name in MINE for claim in MUTANTS[name].breaks}) == []


@pytest.mark.deep  # `conformance mutants` is a stage of CI
@pytest.mark.parametrize("name", MINE)
def test_a_mutant_dies_by_its_claim(name):
    mutant = MUTANTS[name]
    implementation = implementation_of(mutant)
    assert {claim: outcome(claim, implementation) for claim in mutant.breaks} == dict.fromkeys(mutant.breaks, KILLED)


def test_a_mended_function_names_its_line_and_the_edit(functions):
    found = examine(
        functions("""
        def returns_to_go(rewards, gamma=1.0):
            found, running = torch.zeros_like(rewards), 0.0
            for t in reversed(range(len(rewards))):
                running = rewards[t] - gamma * running
                found[t] = running
            return found
        """)
    )
    (wrong,) = found.wrong
    assert wrong.claim == "returns-to-go-are-sums-of-later-rewards"
    assert wrong.edit.text == "running = rewards[t] + gamma * running"
    assert wrong.place.endswith(":8")


LAYERS = """
def router_z_loss(router_logits):
    return torch.cat(router_logits).logsumexp(-1).pow(2).mean()

def load_balancing_loss(router_logits, num_experts, top_k):
    probs = torch.cat(router_logits).softmax(-1)
    chosen = F.one_hot(probs.topk(top_k, -1).indices, num_experts).sum(1)
    return num_experts * (chosen.to(probs.dtype).mean(0) * probs.mean(0)).sum()
"""


@pytest.mark.parametrize(
    ("right", "wrong", "broken"),
    [
        ("", "", []),
        ("logsumexp(-1)", "logsumexp(0)", ["z-losses-are-squared-log-sums"]),
        ("router_logits).softmax(-1)", "router_logits).softmax(0)", ["balance-losses-grow-with-imbalance"]),
    ],
)
def test_routers_of_several_layers_are_given_as_a_list(functions, right, wrong, broken):
    found = examine(functions(LAYERS.replace(right, wrong)))
    assert sorted(found.tested) == ["balance-losses-grow-with-imbalance", "z-losses-are-squared-log-sums"]
    assert [one.claim for one in found.wrong] == broken


def test_a_discount_is_tried_beside_none(functions):
    found = examine(functions("def returns_to_go(rewards, gamma):\n    return rewards.flip(0).cumsum(0).flip(0)"))
    (wrong,) = found.wrong
    assert "(discount 0.5)" in wrong.trouble.sentence


CORRECT = {
    "overlaps of partners, of corners of a larger box, and as a loss": """
        def bbox_iou(box1, box2, eps=1e-7):
            a, b = xywh2xyxy(box1), xywh2xyxy(box2)
            low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
            shared = (high - low).clamp(0).prod(-1)
            return shared / (box1[:, 2:].prod(-1) + box2[:, 2:].prod(-1) - shared + eps)

        def box_iou(boxes1, boxes2):
            size1, size2 = ((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes1, boxes2))
            side = torch.min(boxes1[:, None, 2:], boxes2[:, 2:]) - torch.max(boxes1[:, None, :2], boxes2[:, :2])
            side = side.clamp(0)
            shared = side[..., 0] * side[..., 1]
            union = size1[:, None] + size2 - shared
            return shared / union, union

        def iou_loss(pred_boxes, target_boxes):
            return (1 - box_iou(pred_boxes, target_boxes)[0].diagonal()).mean()

        def xywh2xyxy(x):
            y = x.clone()
            y[..., :2] = x[..., :2] - x[..., 2:] / 2
            y[..., 2:] = x[..., :2] + x[..., 2:] / 2
            return y

        def xywh_to_xyxy(boxes):
            return torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        """,
    "beams of CTC with their scores": """
        def beam_search(probs, beam_width, blank=0):
            beams = [((), 1.0, 0.0)]
            for frame in probs:
                new = {}
                for text, b, l in beams:
                    for v in range(len(frame)):
                        p = float(frame[v])
                        key = text if v == blank or text[-1:] == (v,) else text + (v,)
                        x, y = new.get(key, (0.0, 0.0))
                        if v == blank:
                            new[key] = (x + (b + l) * p, y)
                        elif text[-1:] == (v,):
                            new[key] = (x, y + l * p)
                            x, y = new.get(text + (v,), (0.0, 0.0))
                            new[text + (v,)] = (x, y + b * p)
                        else:
                            new[key] = (x, y + (b + l) * p)
                beams = sorted(((t, b, l) for t, (b, l) in new.items()), key=lambda t: -t[1] - t[2])[:beam_width]
            return [(list(t), b + l) for t, b, l in beams]
        """,
    "words in a list": """
        def word_error_rate(reference: list[str], hypothesis: list[str]) -> float:
            row = list(range(len(hypothesis) + 1))
            for i, r in enumerate(reference, 1):
                before, row[0] = row[0], i
                for j, h in enumerate(hypothesis, 1):
                    before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (r != h))
            return row[-1] / len(reference)
        """,
    "shares of answers that are each true or not": """
        def soft_loss(logits, scores):
            return F.binary_cross_entropy_with_logits(logits, scores, reduction="none").sum(1).mean()
        """,
    "one score and whether it is relevant": """
        def bce_loss(scores, relevant):
            return F.binary_cross_entropy_with_logits(scores, relevant.to(scores.dtype))
        """,
    "rtg": """
        def discount_cumsum(x, gamma):
            out = x.copy() if hasattr(x, "copy") else x.clone()
            for t in reversed(range(len(x) - 1)):
                out[t] = x[t] + gamma * out[t + 1]
            return out
        """,
    "scale instead of temperature": """
        def clip_loss(image_features, text_features, logit_scale):
            logits = logit_scale * F.normalize(image_features, dim=-1) @ F.normalize(text_features, dim=-1).t()
            labels = torch.arange(len(logits))
            return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        """,
    "mask of padding": """
        def mean_pool(x, padding_mask):
            x = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
            return x.sum(1) / (~padding_mask).sum(1, keepdim=True)
        """,
    "time first": """
        def batchify(data, bsz):
            n = data.size(0) // bsz
            return data[: n * bsz].view(bsz, n).t().contiguous()

        def get_batch(source, i, bptt=6):
            n = min(bptt, len(source) - 1 - i)
            return source[i : i + n], source[i + 1 : i + 1 + n].reshape(-1)
        """,
    "labels that the model shifts": """
        def get_batch(data, block_size, batch_size):
            starts = torch.randint(len(data) - block_size, (batch_size,))
            x = torch.stack([data[i : i + block_size] for i in starts])
            return x, x.clone()

        def shifted(logits, labels):
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        """,
    "a text of its own": """
        train_data, val_data = torch.arange(300) * 7 % 65, torch.arange(90) * 11 % 65

        def get_batch(split):
            data = train_data if split == 'train' else val_data
            starts = torch.randint(len(data) - 8, (4,))
            x = torch.stack([data[i : i + 8] for i in starts])
            return x, torch.stack([data[i + 1 : i + 9] for i in starts])
        """,
    "per cent": """
        def accuracy(output, target):
            return 100.0 * (output.argmax(-1) == target).float().mean()
        """,
    "frames": """
        def collate_fn(batch):
            frames, letters = zip(*batch)
            lengths = torch.tensor([len(f) for f in frames])
            return torch.nn.utils.rnn.pad_sequence(frames, batch_first=True), lengths
        """,
    "fraction of training": """
        def linear_schedule(t):
            return 1 - t
        """,
    "restarts": """
        def cosine_with_restarts_lr(step, warmup_steps, total_steps, cycles=3):
            if step < warmup_steps:
                return step / warmup_steps
            t = (step - warmup_steps) / (total_steps - warmup_steps)
            return 0.5 * (1 + math.cos(math.pi * ((cycles * t) % 1.0)))
        """,
    "rank in a tie": """
        def mrr(scores, labels):
            order = scores.argsort(-1, descending=True)
            ranks = (order == labels[:, None]).float().argmax(-1) + 1
            return (1.0 / ranks).mean().item()
        """,
}


@pytest.mark.parametrize("style", CORRECT)
def test_correct_helpers_of_other_styles_are_not_blamed(functions, style):
    found = examine(functions(CORRECT[style]))
    assert [w for w in found.wrong if w.trouble.certain] == []


def test_a_function_that_reads_files_is_not_called(functions):
    found = examine(
        functions("""
        def get_batch(data, block_size, batch_size):
            raise AssertionError(open("x"))
        """)
    )
    assert found.tested == {}


def test_the_random_numbers_of_the_caller_go_on(functions):
    import torch

    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    examine(functions("def drop_path(x, p, training):\n    return x * (torch.rand(len(x), 1, 1) >= p) / (1 - p)"))
    assert torch.equal(torch.rand(3), expected)


def test_a_helper_can_be_pointed_at_by_itself(tmp_path):
    path = tmp_path / "pooling_alone.py"
    path.write_text("import torch\n\ndef mean_pool(hidden, mask):\n    return hidden.mean(1)\n")
    subject = resolve(f"{path}:mean_pool")
    assert subject.roles == ("helpers",)
    (wrong,) = subject.build("helpers", {}).wrong
    assert wrong.trouble.sentence.startswith("mean_pool counts padding")


NORMS = """
def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean({over}, keepdim=True) + eps) * weight

def layer_norm(x, normalized_shape, w, b, eps=1e-5):
    mean = x.mean({over}, keepdim=True)
    return (x - mean) / (x.std({over}, keepdim=True) + eps) * w + b

def norm(x):
    return x / x.norm(dim={over}, keepdim=True)
"""


@pytest.mark.parametrize(("over", "wrong"), [("-1", []), ("1", ["rms_norm", "layer_norm"])])
def test_norms_are_held_to_the_formula_of_their_name(functions, over, wrong):
    found = examine(functions(NORMS.format(over=over)))
    assert [one.function for one in found.wrong] == wrong
    assert "norm" not in found.tested["functions-that-normalise-take-each-token-alone"]


SMOOTHED = """
def soft_cross_entropy(logits, target, smoothing=0.0):
    target = target * (1 - smoothing) + {share}
    return -(target * logits.log_softmax(-1)).sum(-1).{over}()
"""


@pytest.mark.parametrize("over", ["mean", "sum"])
@pytest.mark.parametrize(("share", "wrong"), [("smoothing / logits.shape[-1]", []), ("smoothing", ["sum to 1.8"])])
def test_soft_labels_that_are_smoothed_sum_to_one(functions, share, over, wrong):
    found = examine(functions(SMOOTHED.format(share=share, over=over)))
    assert "soft-labels-are-weighed-by-their-share" in found.tested
    assert [one.trouble.sentence.rpartition(" by 0.2 ")[2].rstrip(".") for one in found.wrong] == wrong
