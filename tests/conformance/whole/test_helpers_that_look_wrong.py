"""Helpers that are right in a form that looks wrong at first: nothing is said of them, or no more than a note."""

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers.examining import examine

CONTRAST, NDCG = "contrastive-losses-prefer-the-own-partner", "ndcg-discounts-by-the-rank"
MIXED, PLACES = "mixed-samples-have-mixed-labels", "resized-positions-keep-their-features"
RIGHT = {
    "mixed in the share of each sample": (
        MIXED,
        """
            def mixup(x, y, num_classes, alpha=0.4):
                lam = torch.distributions.Beta(alpha, alpha).sample((len(x),))
                index = torch.randperm(len(x))
                soft = F.one_hot(y, num_classes).float()
                l = lam.view(-1, 1, 1, 1)
                return l * x + (1 - l) * x[index], lam[:, None] * soft + (1 - lam[:, None]) * soft[index]
        """,
    ),
    "a box of whole pixels": (
        MIXED,
        """
            def cutmix(images, labels, alpha=1.0):
                lam = float(torch.distributions.Beta(alpha, alpha).sample())
                perm = torch.randperm(len(images))
                h, w = images.shape[-2:]
                ch, cw = int(h * (1 - lam) ** 0.5), int(w * (1 - lam) ** 0.5)
                top, left = random.randint(0, h - ch), random.randint(0, w - cw)
                images = images.clone()
                images[..., top:top+ch, left:left+cw] = images[perm][..., top:top+ch, left:left+cw]
                return images, labels, labels[perm], lam
        """,
    ),
    "a box that is cut off at the border": (
        MIXED,
        """
            def cutmix(images, labels, alpha=1.0):
                lam = float(torch.distributions.Beta(alpha, alpha).sample())
                perm = torch.randperm(len(images))
                h, w = images.shape[-2:]
                ch, cw = int(h * (1 - lam) ** 0.5), int(w * (1 - lam) ** 0.5)
                cy, cx = random.randrange(h), random.randrange(w)
                a, b, c, d = max(0, cy - ch // 2), min(h, cy + ch // 2), max(0, cx - cw // 2), min(w, cx + cw // 2)
                images = images.clone()
                images[..., a:b, c:d] = images[perm][..., a:b, c:d]
                lam = 1 - (b - a) * (d - c) / (h * w)
                return images, labels, labels[perm], lam
        """,
    ),
    "one direction, as its text says": (
        CONTRAST,
        """
            def info_nce(queries, docs, temperature=0.1):
                '''Asymmetric: only queries choose their documents, in contrast to the symmetric loss of CLIP.'''
                q, d = F.normalize(queries, dim=-1), F.normalize(docs, dim=-1)
                return F.cross_entropy(q @ d.t() / temperature, torch.arange(len(q)))
        """,
    ),
    "a scale by one letter": (
        CONTRAST,
        """
            def info_nce(a, b, s=20.0):
                a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
                return F.cross_entropy(s * a @ b.t(), torch.arange(len(a)))
        """,
    ),
    "a sigmoid for each pair": (
        CONTRAST,
        """
            def sigmoid_contrastive_loss(image_features, text_features, t, bias=-10.0):
                logits = t * F.normalize(image_features, dim=-1) @ F.normalize(text_features, dim=-1).t() + bias
                labels = 2 * torch.eye(len(logits)) - 1
                return -F.logsigmoid(labels * logits).sum() / len(logits)
        """,
    ),
    "a sigmoid of vectors that come normalised": (
        CONTRAST,
        """
            def siglip_contrastive_loss(image_features, text_features, logit_scale, bias=-10.0):
                '''Features come normalized.'''
                # cosine similarities
                logits = logit_scale * image_features @ text_features.t() + bias
                labels = 2 * torch.eye(len(logits)) - 1
                return -F.logsigmoid(labels * logits).sum() / len(logits)
        """,
    ),
    "the logarithm of a scale": (
        CONTRAST,
        """
            def clip_loss(image_features, text_features, logit_scale):
                logits = torch.as_tensor(logit_scale).exp() * image_features @ text_features.t()
                own = torch.arange(len(logits))
                return (F.cross_entropy(logits, own) + F.cross_entropy(logits.t(), own)) / 2
        """,
    ),
    "gathered from all processes": (
        CONTRAST,
        """
            def gather(x):
                import torch.distributed as dist
                if not (dist.is_available() and dist.is_initialized()):
                    return x
                xs = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
                dist.all_gather(xs, x)
                xs[dist.get_rank()] = x
                return torch.cat(xs)
            def clip_loss(image_features, text_features, temperature=0.07):
                a, b = F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1)
                all_a, all_b = gather(a), gather(b)
                own = torch.arange(len(a))
                one, other = (x / temperature for x in (a @ all_b.t(), b @ all_a.t()))
                return (F.cross_entropy(one, own) + F.cross_entropy(other, own)) / 2
        """,
    ),
    "ranks from 1, in arrays": (
        NDCG,
        """
            def compute_metrics(ranks, topk=10):
                import numpy as np
                ranks = np.array(ranks)
                hit = ranks <= topk
                return {"hit": hit.mean(), "ndcg": np.where(hit, 1 / np.log2(ranks + 1), 0).mean()}
        """,
    ),
    "a table that is filled up with zeros": (
        PLACES,
        """
            def adapt_pos_embed(pos_embed, grid_size):
                side = math.isqrt(len(pos_embed))
                image = pos_embed.view(side, side, -1)
                new = torch.zeros(grid_size, grid_size, image.shape[-1])
                new[:side, :side] = image
                return new.view(grid_size ** 2, -1)
        """,
    ),
    "bilinear, with a prefix": (
        PLACES,
        """
            def resample_abs_pos_embed(posemb, new_size, old_size=None, num_prefix_tokens=1):
                new_size = (new_size, new_size) if isinstance(new_size, int) else new_size
                prefix, grid = posemb[:, :num_prefix_tokens], posemb[:, num_prefix_tokens:]
                hw = int(math.sqrt(grid.shape[1]))
                grid = grid.reshape(1, hw, hw, -1).permute(0, 3, 1, 2)
                grid = F.interpolate(grid, size=new_size, mode="bilinear", antialias=True)
                grid = grid.permute(0, 2, 3, 1).reshape(1, new_size[0] * new_size[1], -1)
                return torch.cat([prefix, grid], 1)
        """,
    ),
    "scaled as a whole": (
        PLACES,
        """
            def interpolate_pos_embed(pos_embed, new_grid):
                side = math.isqrt(pos_embed.shape[1])
                image = pos_embed.reshape(1, side, side, -1).permute(0, 3, 1, 2)
                image = F.interpolate(image, size=(new_grid, new_grid), mode="bicubic") * 0.9
                return image.permute(0, 2, 3, 1).flatten(1, 2)
        """,
    ),
    "two class tokens": (
        PLACES,
        """
            def resize_pos_embed(pos_embed, new_grid):
                cls, patches = pos_embed[:, :2], pos_embed[:, 2:]
                side = math.isqrt(patches.shape[1])
                image = patches.reshape(1, side, side, -1).permute(0, 3, 1, 2)
                image = F.interpolate(image, size=(new_grid, new_grid), mode="bicubic", align_corners=False)
                return torch.cat([cls, image.flatten(2).transpose(1, 2)], dim=1)
        """,
    ),
}


@pytest.mark.parametrize("form", RIGHT)
def test_a_right_form_is_tested_and_breaks_nothing(functions, form):
    claim, text = RIGHT[form]
    found = examine(functions(text))
    assert claim in found.tested
    assert found.wrong == []


OF_GRADES = """
    def ndcg_at_k(relevance, scores, k=10):
        order = scores.argsort(descending=True)[:k]
        gains = 2 ** relevance[order].float() - 1
        best = 2 ** relevance.sort(descending=True).values[:k].float() - 1
        discounts = 1 / torch.log2(torch.arange(len(gains)) + 2.0)
        return ((gains * discounts).sum() / (best * discounts).sum()).item()
"""
WITH_CLASSES = """
    def contrastive_loss(features, labels, temperature=0.1):
        f = F.normalize(features, dim=-1)
        same = (labels[:, None] == labels).float().fill_diagonal_(0)
        logits = (f @ f.t() / temperature).fill_diagonal_(-1e9)
        return -((same * logits.log_softmax(-1)).sum(1) / same.sum(1).clamp(min=1)).mean()
"""


@pytest.mark.parametrize("text", [OF_GRADES, WITH_CLASSES], ids=["grades", "classes"])
def test_what_is_told_more_is_another_kind(functions, text):
    found = examine(functions(text))
    assert {NDCG, CONTRAST}.isdisjoint(found.tested)
    assert found.wrong == []


OTHER_SHARE = """
    def mixup_data(x, y, alpha=1.0):
        lam = float(torch.distributions.Beta(alpha, alpha).sample())
        index = torch.randperm(len(x))
        return (1 - lam) * x + lam * x[index], y, y[index], lam
"""


def test_the_share_of_the_second_labels_is_a_note_where_nothing_says_whose_it_is(functions):
    (noted,) = examine(functions(OTHER_SHARE)).wrong
    assert not noted.trouble.certain
    said = OTHER_SHARE.replace("alpha=1.0):", "alpha=1.0):\n        '''lam: the share of the first'''")
    (wrong,) = examine(functions(said)).wrong
    assert wrong.trouble.certain


@pytest.mark.slow
def test_a_share_that_a_border_has_changed_is_wrong(functions):
    _, text = RIGHT["a box that is cut off at the border"]
    (wrong,) = examine(functions(text.replace("lam = 1 - (b - a)", "_ = 1 - (b - a)"))).wrong
    assert (wrong.claim, wrong.trouble.certain) == (MIXED, True)


def test_a_scale_that_blunts_is_wrong(functions):
    text = RIGHT["the logarithm of a scale"][1].replace(".exp() *", ".neg().exp() *")
    (wrong,) = examine(functions(text)).wrong
    assert "does not make the choice sharper" in wrong.trouble.sentence
