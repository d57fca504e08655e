"""Functions with one mistake each, that stand beside a model as beside a training script: their text shows it."""

MARGIN_OF_TWO_ANSWERS = """
def margin(pol_c, pol_r, ref_c, ref_r):
    return (pol_c - ref_c) - (pol_r - ref_c)
"""
BEAMS_OF_THE_LAST_WORD = """
def beam_search(live, words, k):
    found = [(lp, seq + [word]) for (score, seq) in live for lp, word in words(seq)]
    return sorted(found, key=lambda one: -one[0])[:k]
"""
PAIRS_COUNTED_ONCE = """
def count(table, labels, predictions):
    table[labels, predictions] += 1
"""
GAINS_OF_A_NATURAL_LOGARITHM = """
def mean_ndcg(ranks, k):
    ndcg = 0.0
    for rank in ranks:
        ndcg += (rank < k) / math.log(rank + 2)
    return ndcg / len(ranks)
"""
RESULTS_LEFT_SORTED = """
def encode_all(model, texts):
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = []
    for text in [texts[i] for i in order]:
        found.append(model(text))
    return [found[i] for i in order]
"""
WARM_UP_OF_A_ROOT = """
def noam(step, warmup, d_model):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)
"""
FILLING_THROWN_AWAY = """
def hide(scores, padding):
    scores.masked_fill(padding, -1e9)
    return scores
"""
LAST_SPAN_LEFT_OPEN = """
def spans_of(tags):
    spans, start = [], None
    for i, tag in enumerate(tags):
        if start is not None and tag != 'I':
            spans.append((start, i))
            start = None
        if tag == 'B':
            start = i
    return spans
"""
ERRORS_UNDER_TWO_NAMES = """
def f1_of(pred, gold, c):
    tp = ((pred == c) & (gold == c)).sum()
    fp = ((pred == c) & (gold != c)).sum()
    fn = ((pred == c) & (gold != c)).sum()
    return 2 * tp / (2 * tp + fp + fn)
"""
BEST_BEHIND_THE_TARGET = """
def mean_bleu(model, pairs):
    found = []
    for src, tgt in pairs:
        logits = model(src, tgt[:, :-1])
        found.append(bleu(logits.argmax(-1).tolist(), tgt[:, 1:].tolist()))
    return sum(found) / len(found)
"""
DECISIONS_RANKED = """
def report(auc, scores, labels, threshold):
    return {"auc": auc((scores >= threshold).astype(int), labels)}
"""
BITS_MULTIPLIED = """
def report(nats):
    return {"bits_per_byte": nats * math.log(2)}
"""
UNION_WITH_ALL_TWICE = """
def iou(guess, truth):
    both = (guess & truth).sum()
    union = guess.sum() + truth.sum()
    return both / union
"""
TABLE_ALONG_THE_OTHER_AXIS = """
def rates(table, labels, pred, n):
    table += torch.bincount(pred * n + labels, minlength=n * n).view(n, n)
    truth, guessed = table.sum(1), table.sum(0)
    return table.diag() / truth, table.diag() / guessed
"""
WARM_UP_IN_WHOLE_NUMBERS = """
def factor(step, warmup):
    return min(1.0, (step + 1) // warmup)
"""
WORST_FIRST = """
def average_precision(scores, labels):
    order = scores.argsort()
    hits = labels[order].cumsum(0)
    return (hits / torch.arange(1, len(order) + 1))[labels[order] == 1].mean()
"""
BREVITY_TURNED_ROUND = """
def brevity(hyp_len, ref_len):
    return 1.0 if hyp_len > ref_len else math.exp(1 - hyp_len / ref_len)  # of BLEU
"""
TEMPERATURE_MULTIPLIED = """
def draw(logits, temperature):
    return torch.multinomial((logits * temperature).softmax(-1), 1)
"""
AXES_OUT_OF_ORDER = """
def frames(x):
    b, c, t, f = x.shape
    return x.reshape(b, t, c * f)
"""
BEAMS_BEGIN_AS_COPIES = """
def search(model, start, width, steps):
    tokens = torch.full((width, 1), start)
    scores = torch.zeros(width)
    for _ in range(steps):
        total = scores[:, None] + model(tokens)[:, -1].log_softmax(-1)
        scores, flat = total.flatten().topk(width)
        tokens = torch.cat([tokens[flat // total.size(1)], (flat % total.size(1))[:, None]], 1)
    return tokens[0]
"""
LABELS_NOT_MOVED = """
def next_token_loss(logits, labels):
    logits, labels = logits[:, :-1], labels[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
"""
STATISTICS_NOT_SAVED = """
class Standardizer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width), persistent=False)

    def fit(self, rows):
        self.mean.copy_(rows.mean(0))

    def forward(self, rows):
        return rows - self.mean
"""
COLUMNS_OVERLAP = """
def table_of_columns(cards, width):
    sizes = cards + 1
    starts = torch.cumsum(cards, 0) - cards
    return nn.Embedding(int(sizes.sum()), width), starts
"""
LENGTHS_MULTIPLY = """
def length_penalty(n, alpha=0.6):
    return ((5 + n) / 6) ** alpha


def finish(beams):
    return max((score * length_penalty(len(words)), words) for score, words in beams)
"""
ENDS_NOT_TAUGHT = """
def labels_of(tokens):
    labels = tokens[:, 1:].clone()
    labels[labels == EOS] = -100
    return labels
"""
TERMS_SCALED_APART = """
def scores_of(query, key, distances, scale):
    content = torch.einsum("bhid,bhjd->bhij", query, key)
    position = torch.einsum("bhid,ijd->bhij", query, distances)
    return content * scale + position
"""
HIDDEN_BY_NOUGHT = """
def attend(queries, keys, values, padding):
    scores = queries @ keys.transpose(1, 2)
    scores = scores.masked_fill(padding[:, None], 1e-9)
    return scores.softmax(-1) @ values
"""
GRID_IN_TWO_ORDERS = """
def patches_with_places(patches, places):
    patches = rearrange(patches, "b d h w -> b (h w) d")
    return patches + rearrange(places, "b h w d -> b (w h) d")
"""
BOXES_OF_THE_OTHER_SIDE = """
def to_pixels(boxes, height, width):
    return boxes * torch.tensor([height, width, height, width])
"""
STARTS_BEHIND_PIECES = """
def pieces_of(words, numbers):
    ids, starts = [], []
    for word in words:
        ids.extend(numbers[word])
        starts.append(len(ids))
    return ids, starts
"""
STOPPED_BY_THE_WORSE_END = """
class Stopper:
    def __init__(self):
        self.best, self.state = -1.0, None

    def update(self, value, model):
        if value > self.best:
            self.best, self.state = value, copy.deepcopy(model.state_dict())


def after_an_epoch(stopper, figures, model):
    stopper.update(figures["val_loss"], model)
"""
CALIBRATED_ON_TRAINING = """
def calibrate(model, train_loader, valid_loader):
    logits, labels = answers(model, train_loader)
    temperature = fit_temperature(logits, labels)
    return temperature
"""
ACCURACY_OF_ANSWERED = """
def class_accuracy(logits, labels, classes):
    pred = logits.argmax(1)
    rows = []
    for k in range(classes):
        chosen = pred == k
        rows.append((labels[chosen] == k).float().mean())
    return rows
"""
WEEKDAYS_OF_HOURS = """
def calendar(hours):
    hour = hours % 24
    weekday = hours % 7
    return hour, weekday
"""
NEWEST_CUT_OFF = """
def left_pad(rows, longest):
    block = torch.zeros(len(rows), longest, dtype=torch.long)
    for at, row in enumerate(rows):
        row = row[:longest]
        block[at, longest - len(row):] = torch.tensor(row)
    return block
"""
GAINS_OFF_BY_ONE = """
def rank_of(scores, own):
    return (scores > own[:, None]).sum(1) + 1


def ndcg(ranks, k=10):
    return ((ranks <= k) / torch.log2(ranks + 2)).mean()
"""
TABLE_OF_SHUFFLED_ROWS = """
def table_of_answers(teacher, rows):
    loader = DataLoader(rows, batch_size=64, shuffle=True)
    with torch.no_grad():
        return torch.cat([teacher(batch) for batch in loader])
"""
AVERAGE_GETS_OTHER_WEIGHTS = """
def keep_and_restore(model, ema, score, best):
    if score > best:
        best_state = copy.deepcopy(model.state_dict())
    ema.load_state_dict(best_state)
"""
TRAINING_WITHOUT_END = """
def split(groups, times, end, last):
    train = groups == 0
    valid = (groups == 1) & (times >= end) & (times < last)
    test = (groups == 2) & (times >= last)
    return train, valid, test
"""
WINDOW_IN_ITS_TARGET = """
def window(series, at, before, ahead):
    past = series[:, at - before + 1 : at + 1]
    future = series[:, at : at + ahead]
    return past, future
"""
LABELS_BEHIND_THE_MASK = """
def hide(ids, chosen, mask_id):
    hidden = ids
    hidden[chosen] = mask_id
    labels = torch.where(chosen, ids, -100)
    return hidden, labels
"""
ENDS_LEFT_OUT_WITH_PADDING = """
EOS_ID = 2
PAD_ID = 2


def labels_of(prompt, answer):
    ids = torch.tensor([*prompt, *answer, EOS_ID])
    labels = ids.clone()
    labels[ids == PAD_ID] = -100
    return labels
"""
PENALTY_BELOW_NOUGHT = """
def penalized(logits, written, penalty):
    return torch.where(written, logits / penalty, logits)
"""
SCALE_OF_A_PLAIN_TENSOR = """
class LayerScale(nn.Module):
    def __init__(self, width, value=0.1):
        super().__init__()
        self.gamma = torch.full((width,), value)

    def forward(self, x):
        return x * self.gamma
"""
RETURNS_OF_A_WINDOW = """
def window_of(rewards, start, stop):
    return returns_to_go(rewards[start:stop])
"""
WANTED_FROM_THE_BEGINNING = """
def played(model, environment, returns, steps):
    for _ in range(steps):
        reward = environment.step(model.act(returns))
        returns = torch.cat((returns, returns[:1] - reward))
    return returns
"""
NEWEST_BY_A_COUNT = """
def pad_left(rows, longest):
    return torch.tensor([[0] * (longest - len(row)) + row for row in rows])


def newest(states, items):
    last = (items != 0).sum(dim=1) - 1
    return states[torch.arange(len(items)), last]
"""
MASKS_BY_HEADS_FIRST = """
def attend(attention: nn.MultiheadAttention, x, hidden, heads):
    each = hidden.repeat(heads, 1, 1)
    return attention(x, x, x, attn_mask=each)[0]
"""
KEPT_LETTERS_COMPARED = """
def letters_of(path, blank=0):
    letters = []
    for letter in path:
        if letter != blank and (not letters or letter != letters[-1]):
            letters.append(letter)
    return letters
"""
SCALED_IN_PART = """
def info_nce(query, positive, negative, temperature):
    near = query @ positive.T
    far = query @ negative.T
    logits = torch.cat([near / temperature, far], dim=1)
    return nn.functional.cross_entropy(logits, torch.arange(len(query)))
"""
COMPARED_WITH_THEMSELVES = """
def left_out(scores, own_ids, hard_ids, queue_ids):
    candidate_ids = torch.cat([hard_ids, queue_ids])
    return scores.masked_fill(hard_ids[:, None] == candidate_ids[None, :], -float("inf"))
"""
TEST_AMONG_FEWER = """
def figures_of(model, valid_ids, test_ids, train_ids):
    best = recall(model, valid_ids, valid_ids | train_ids)
    return best, recall(model, test_ids, test_ids)
"""
RECIPROCAL_OF_A_MEAN = """
def reciprocal(ranks):
    return 1.0 / ranks.float().mean()
"""
KEPT_ROWS_CHANGED = """
class Noisy:
    def __init__(self, x):
        self.x = x

    def __getitem__(self, at):
        x = self.x[at]
        x += 0.1 * torch.randn_like(x)
        return x
"""
SET_OF_TENSORS = """
def share_of_new(rows, texts):
    ids = [torch.tensor(row) for row in rows]
    known = set(ids)
    return sum(text not in known for text in texts) / len(texts)
"""
DEALT_OUT_BY_ROWS = """
def written(dates):
    return [(form, target_of(date)) for date in dates for form in forms_of(date)]


def parts_of(dates, rng, end, last):
    pool = written(dates)
    rng.shuffle(pool)
    train = pool[:end]
    valid = pool[end:last]
    return train, valid, pool[last:]
"""
REPEATS_IN_SPITE = """
def names_of(count, rng):
    "Distinct names, in any order."
    names = []
    while len(names) < count:
        names.append(invented(rng))
    return names
"""
ONE_PART_LEFT_OUT = """
def by_author(rows, valid_authors, test_authors):
    valid = [row for row in rows if row["author"] in valid_authors]
    test = [row for row in rows if row["author"] in test_authors]
    train = [row for row in rows if row["author"] not in valid_authors]
    return train, valid, test
"""
FOCAL_BY_THE_LIKELY = """
def focal_loss(logits, labels, gamma=2.0):
    log_p = logits.log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
    p_t = log_p.exp()
    return (p_t**gamma * -log_p).mean()
"""
MASK_LEFT_OUT_IN_WRITING = """
class Translator(nn.Module):
    def forward(self, source, target):
        memory, memory_pad = self.encode(source)
        return self.decode(memory, memory_pad, target)

    def greedy(self, source, words, steps):
        memory, memory_pad = self.encode(source)
        for _ in range(steps):
            words = self.decode(memory, None, words)
        return words
"""
FUTURE_SHOWN = """
def causal_mask(size):
    return torch.triu(torch.ones(size, size), diagonal=1).bool()
"""
WEIGHTS_OVER_SEEDS = """
def pool_with_seeds(seeds, keys, values):
    scores = torch.einsum("shd,bnhd->bshn", seeds, keys)
    weights = torch.softmax(scores, dim=1)
    return torch.einsum("bshn,bnhd->bshd", weights, values)
"""
QUEUED_BEFORE_COMPARED = """
class Contrast:
    def enqueue(self, keys):
        self.queue = torch.cat([self.queue[len(keys):], keys])

    def loss(self, queries, keys):
        self.enqueue(keys)
        candidates = torch.cat([keys, self.queue])
        logits = queries @ candidates.T / 0.07
        return F.cross_entropy(logits, torch.arange(len(queries)))
"""
Z_AS_IT_IS = """
def loss_with_z(logits, labels, weight=1e-4):
    log_z = torch.logsumexp(logits, dim=-1)
    nll = (log_z - logits.gather(-1, labels[:, None])[:, 0]).mean()
    z_term = log_z.mean()
    return nll + weight * z_term
"""
DRAWN_BY_EITHER_SIGN = """
def accept_or_redraw(p, q, token):
    if torch.rand(()) < (p[token] / q[token]).clamp(max=1.0):
        return token
    rest = (p - q).abs()
    return int(torch.multinomial(rest / rest.sum(), 1))
"""
READ_FROM_THE_BEGINNING = """
def rolled(model, past, known, steps, horizon):
    chunks = []
    for start in range(0, steps, horizon):
        pred = model(past, known[:, :horizon])
        past = torch.cat([past, pred], 1)
        chunks.append(pred)
    return torch.cat(chunks, 1)
"""
WINDOWS_COUNTED_AGAIN = """
def perplexity_by_strides(model, ids, width, stride):
    total, count, scored_to = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + width, len(ids))
        chunk = ids[begin:end]
        nll = F.cross_entropy(model(chunk[None])[0, :-1], chunk[1:], reduction="none")[-(end - begin):]
        total, count = total + nll.sum().item(), count + len(nll)
        scored_to = end
        if end == len(ids):
            break
    return math.exp(total / count)
"""
POSITIONS_STRETCHED = """
class Rotation:
    def angles(self, length):
        t = torch.arange(length).float()
        t = t * self.scaling_factor
        angles = torch.outer(t, self.inv_freq)
        return angles.cos(), angles.sin()
"""
PATHS_END_IN_PADDING = """
class Chain:
    def score(self, emit, tags, mask):
        total = self.begin[tags[:, 0]] + (emit.gather(2, tags[..., None])[..., 0] * mask).sum(1)
        total = total + (self.trans[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]).sum(1)
        return total + self.end[tags[:, -1]]
"""
LARGEST_FOR_END = """
class Reader:
    def __init__(self, vocab_size=300, width=16, eos_id=2):
        self.table = nn.Embedding(vocab_size, width)

    def forward(self, ids):
        last = ids.argmax(dim=-1)
        return self.table(ids)[torch.arange(len(ids)), last]
"""
PLACES_OF_PADDING = """
class Places:
    def __init__(self, width=16, pad_row=1):
        self.positions = nn.Embedding(64, width, padding_idx=pad_row)

    def forward(self, mask):
        places = torch.cumsum(mask, 1) * mask
        return self.positions(places)
"""
SLOTS_LEFT_OUT = """
class Columns:
    def __init__(self, cardinalities, width):
        sizes = torch.tensor([c + 1 for c in cardinalities])
        counts = torch.tensor(cardinalities)
        self.offsets = torch.cumsum(counts, 0) - counts
        self.table = nn.Embedding(int(sizes.sum()), width)
"""
PARTS_THAT_OVERLAP = """
def parts_of(sessions, valid_from, test_from):
    train_sessions = [s for a, b, s in sessions if b < test_from]
    valid_sessions = [s for a, b, s in sessions if a >= valid_from and b < test_from]
    test_sessions = [s for a, b, s in sessions if a >= test_from]
    return train_sessions, valid_sessions, test_sessions
"""
ROWS_WITHOUT_GROUPS = """
def parts_of(records, rng):
    pids = sorted({r["pid"] for r in records})
    rng.shuffle(records)
    ends = {"train": (0, 40), "dev": (40, 50), "test": (50, 2 * len(pids))}
    return {name: records[a:b] for name, (a, b) in ends.items()}
"""
PLACES_FROM_THE_EDGE = """
def left_pad(texts, pad=0):
    width = max(len(text) for text in texts)
    ids = torch.full((len(texts), width), pad)
    for row, text in enumerate(texts):
        ids[row, width - len(text):] = torch.tensor(text)
    positions = torch.arange(width).expand(len(texts), -1)
    return {"input_ids": ids, "attention_mask": (ids != pad).long(), "position_ids": positions}
"""
OLDEST_KEPT = """
def history_and_target(items, most=50):
    history = items[:-1][:most]
    target = items[-1]
    return history, target
"""
PAST_FOR_FUTURE = """
def window(values, calendar, origin, context, horizon):
    past, future = slice(origin - context, origin), slice(origin, origin + horizon)
    return {"past": values[past], "future_calendar": calendar[past][-horizon:], "target": values[future]}
"""
PLAIN_COUNTS = """
def joined(windows, starts, ramp, length):
    top, bottom = torch.zeros(length), torch.zeros(length)
    for window, a in zip(windows, starts):
        n = len(window)
        top[a:a + n] += ramp[:n] * window
        bottom[a:a + n] += 1
    return top / bottom
"""
TOKENS_FOR_BYTES = """
class BPE:
    def encode(self, text):
        return [self.ranks[piece] for piece in self.split(text)]


def targets_of(ids):
    y = ids[1:].clone()
    n_bytes = int((y != -100).sum())
    return y, n_bytes
"""
MODES_NEVER_READ = """
class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        gate = torch.rand(x.size(0), 1, 1) < 1 - self.p
        return x * gate / (1 - self.p)
"""
EACH_ROW_A_GROUP = """
def corpus_of(tickets):
    rows = []
    for ticket, texts in enumerate(tickets):
        for text in texts:
            rows.append({"id": len(rows), "ticket": ticket, "text": text})
    return rows


def parts_of(tickets, group_split, rng):
    return group_split(corpus_of(tickets), "id", rng)
"""
WHOLE_BEHIND_PARTS = """
def tune(model, tasks, fit, pairs_of):
    n = len(tasks) // 8
    val, test, train = tasks[:n], tasks[n:2 * n], tasks[2 * n:]
    fit(model, pairs_of(tasks[:320]), pairs_of(val))
    return train, test
"""
PADDED_BEHIND = """
def pad_batch(rows, value, side="right"):
    width = max(len(row) for row in rows)
    gaps = [[value] * (width - len(row)) for row in rows]
    return torch.tensor([gap + row if side == "left" else row + gap for gap, row in zip(gaps, rows)])


def written(model, prompts, pad_id=0):
    ids = pad_batch(prompts, pad_id)
    return model.generate(input_ids=ids, attention_mask=(ids != pad_id).long(), max_new_tokens=9)
"""
PROMPTS_TAUGHT = """
IGNORE = -100


def encode(prompt, reply):
    return {"input_ids": prompt + reply, "labels": prompt + reply}


def reply_loss(logits, labels):
    "The mean loss of the tokens of the reply."
    keep = labels != IGNORE
    return F.cross_entropy(logits[keep], labels[keep])
"""
NEIGHBOURS_TWICE = """
class Merging:
    def forward(self, x):
        a = x[:, 0::2, 0::2]
        b = x[:, 1::2, 0::2]
        c = x[:, 0::2, 1::2]
        d = x[:, 0::2, 1::2]
        return self.reduce(torch.cat([a, b, c, d], -1))
"""
SHIFTED_TWICE = """
class Mixing:
    def forward(self, x):
        x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        x = self.in_windows(x)
        x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        return x
"""
MASKS_IN_ANOTHER_ORDER = """
class Axial:
    def forward(self, x, step_mask):
        b, t, c, d = x.shape
        h = x.permute(0, 2, 1, 3).reshape(b * c, t, d)
        h = self.attend(h, step_mask.repeat(c, 1))
        return h.view(b, c, t, d).permute(0, 2, 1, 3)
"""
REGROUPED = """
class Ranker:
    def lists(self, ids):
        queries, candidates, _ = ids.shape
        scores = self.score(ids.flatten(0, 1))
        return scores.view(candidates, queries).t()
"""
BEHIND_THEIR_ENDS = """
def best_span(start_logits, end_logits, longest=15):
    length = start_logits.shape[1]
    scores = start_logits[:, :, None] + end_logits[:, None, :]
    allowed = torch.ones(length, length, dtype=torch.bool).tril(longest - 1)
    return scores.masked_fill(~allowed, float("-inf")).flatten(1).argmax(1)
"""
SIDES_EXCHANGED = """
def span_loss(start_logits, end_logits, start_positions, end_positions):
    start_loss = F.cross_entropy(start_logits, start_positions)
    end_loss = F.cross_entropy(start_logits, end_positions)
    return (start_loss + end_loss) / 2
"""
EDGES_AT_ONE_SIDE = """
def runs_of(labels):
    padded = F.pad(labels.long(), (1, 0))
    edges = padded[1:] - padded[:-1]
    starts = (edges == 1).nonzero().flatten().tolist()
    ends = (edges == -1).nonzero().flatten().tolist()
    return list(zip(starts, ends))
"""
SHARES_FOR_LOGS = """
def mixed(scores, copied, gate, where):
    words = F.softmax(scores, dim=-1)
    mixture = (gate * words).scatter_add(-1, where, (1 - gate) * copied)
    return F.log_softmax(mixture, dim=-1)
"""
PADDING_IN_VAIN = """
def smoothed_nll(logp, labels, pad_id, eps=0.1):
    real = labels.ne(pad_id)
    nll = -logp.gather(-1, labels[..., None])[..., 0]
    return ((1 - eps) * nll - eps * logp.mean(-1)).mean()
"""
OTHER_BEAMS = """
def step(beams, scores, grown, top, ended, beam):
    alive = [j for j in range(2 * beam) if not ended[j]][:beam]
    beams, scores = grown[alive], top[:beam]
    return beams, scores
"""
