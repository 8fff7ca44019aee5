"""scipy.stats on traced arrays. Importing it registers its functions."""

from pullback.tracer.functions.scipy.stats import continuous, discrete, distributions, kde, laws, multivariate, statistics

__all__ = ["continuous", "discrete", "distributions", "kde", "laws", "multivariate", "statistics"]
