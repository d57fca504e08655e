"""Mutants of a forecaster: channels that are mixed up, and what is not put back."""

from __future__ import annotations

from conformance.mutants.source import FOLLOWED, FORECASTER, IMPUTER, QUANTILES, changed

PLACES = "forecast-channels-keep-their-places"
APART = "forecast-channels-are-apart-where-said"
LEVEL = "forecast-follows-level-and-scale-where-said"
ON = "forecasts-go-on-from-their-own"

changed(
    "SeriesCutAcrossChannels",
    FORECASTER,
    "x.transpose(1, 2).reshape(batch * channels, steps // self.patch, self.patch)",
    "x.reshape(batch * channels, steps // self.patch, self.patch)",
    breaks=(PLACES, APART),
    defect="The axes of steps and channels are joined without a transpose: a row holds numbers of all channels.",
)
changed(
    "ForecastsCutAcrossChannels",
    FORECASTER,
    ".reshape(batch, channels, self.horizon).transpose(1, 2)",
    ".reshape(batch, self.horizon, channels)",
    breaks=(PLACES, APART),
    defect="The forecasts of a channel are read as one step of all channels.",
)
changed(
    "ChannelsMeetInAttention",
    FORECASTER,
    "x = self.embed(x) + self.places\n",
    "x = self.embed(x) + self.places\n        x = x + x.unflatten(0, (batch, channels)).mean(1, keepdim=True)"
    ".expand(-1, channels, -1, -1).flatten(0, 1)\n",
    breaks=(APART,),
    defect="The mean over all channels is added to each.",
)
changed(
    "LevelNotPutBack",
    FORECASTER,
    "return y * std + mean",
    "return y * std",
    breaks=(LEVEL,),
    defect="The mean of the series is taken out and not added to the forecast.",
)
changed(
    "ScaleNotPutBack",
    FORECASTER,
    "return y * std + mean",
    "return y + mean",
    breaks=(LEVEL,),
    defect="The deviation of the series is taken out and does not multiply the forecast.",
)
changed(
    "PutBackByTheFirstRow",
    FORECASTER,
    "return y * std + mean",
    "return y * std[:1] + mean",
    breaks=(LEVEL,),
    defect="All rows of the batch are put back by the deviation of the first.",
)
changed(
    "RolloutReadsNoForecast",
    FORECASTER,
    "self(x[:, -self.context :])",
    "self(x[:, : self.context])",
    breaks=(ON,),
    defect="A roll-out reads the same oldest steps each time.",
)
changed(
    "MissingPointsAreCounted",
    FORECASTER,
    "* observed).sum() / observed.sum()",
    "* observed).mean()",
    breaks=("errors-of-observed-points-are-their-mean",),
    defect="The errors at observed points are divided by the number of all points.",
)
changed(
    "QuantilesTurnedRound",
    QUANTILES,
    "error = ((future - level) / scale)[..., None] - self(x)",
    "error = self(x) - ((future - level) / scale)[..., None]",
    breaks=("forecast-quantiles-are-taught-their-levels",),
    defect="The sign of the error is wrong: the lowest quantile learns to be the highest.",
)
changed(
    "FutureInItsOwnUnits",
    QUANTILES,
    "((future - level) / scale)",
    "((future - future.mean(1, keepdim=True)) / scale)",
    breaks=("forecasts-are-taught-the-level-of-what-follows",),
    defect="What follows is taught without its level.",
)
changed(
    "ChannelsAreCutAsSteps",
    QUANTILES,
    "((x - level) / scale * self.gain).transpose(1, 2).reshape(",
    "((x - level) / scale * self.gain).reshape(",
    breaks=("forecast-channels-keep-their-places",),
    defect="Steps and channels are not exchanged before they are cut, which mixes the channels.",
)
changed(
    "OneRowOfPositionsForAll",
    QUANTILES,
    "torch.randn(1, count, width)",
    "torch.randn(1, 1, width)",
    breaks=("positions-differ-from-place-to-place",),
    defect="The table of positions has one row, which all patches get.",
)
changed(
    "GuessesInTheModelsUnits",
    IMPUTER,
    "guess = self.rebuild(states) * std + mean",
    "guess = self.rebuild(states)",
    breaks=("imputed-values-follow-the-series",),
    defect="What is filled in keeps the units of the normalised series.",
)
changed(
    "GapsAreInTheMean",
    FORECASTER,
    "mean = (filled * observed).sum(1, keepdim=True) / count",
    "mean = filled.mean(1, keepdim=True)",
    breaks=("series-are-read-where-they-were-observed",),
    defect="The level of a series is a mean over its gaps, too.",
)
changed(
    "GapsAreInTheSpread",
    FORECASTER,
    "((filled - mean).square() * observed).sum(1, keepdim=True)",
    "(filled - mean).square().sum(1, keepdim=True)",
    breaks=("series-are-read-where-they-were-observed",),
    defect="The spread of a series is a sum over its gaps, too.",
)
changed(
    "GapsAreNoughtInTheMean",
    FORECASTER,
    "mean = (filled * observed).sum(1, keepdim=True) / count",
    "mean = (filled * observed).mean(1, keepdim=True)",
    breaks=("series-are-read-where-they-were-observed",),
    defect="The level of a series is a sum over what was observed, divided by the number of all steps.",
)
changed(
    "MissingNumbersOnTheWayBack",
    FORECASTER,
    "((filled - mean) / std * self.gain + self.shift) * observed",
    "torch.where(observed > 0, (x - mean) / std * self.gain + self.shift, 0.0)",
    breaks=("missing-numbers-teach-finite-gradients",),
    defect="Missing numbers are multiplied by a parameter first, and left out then: its gradient is NaN.",
)
changed(
    "LevelBeforeTheScale",
    QUANTILES,
    "self(x) * scale[..., None] + level[..., None]",
    "(self(x) + level[..., None]) * scale[..., None]",
    breaks=("forecasts-of-methods-are-put-back",),
    defect="The level is added before the scale multiplies.",
)
changed(
    "DecoderGetsWhatItForecasts",
    FOLLOWED,
    "torch.cat([past[:, -1:], future[:, :-1]], 1)",
    "future",
    breaks=("forecasts-do-not-read-what-they-forecast",),
    defect="The decoder is not one step behind: each step is given the value that it forecasts.",
)
changed(
    "DecoderSeesWhatFollows",
    FOLLOWED,
    ", tgt_mask=hidden)",
    ")",
    breaks=("forecasts-do-not-read-what-they-forecast",),
    defect="The decoder sees all values of the future at each step.",
)
