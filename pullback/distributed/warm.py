"""Compile once for all workers of a cluster: one worker of each kind compiles, and the others get its cache entries."""

from __future__ import annotations

import itertools
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.distributed import workers
from pullback.distributed.workers import Kind
from pullback.exporting.argument_specs import argument

SEED = 0
"""The seed of the random arrays that stand for specs."""


class MixedWorkersWarning(UserWarning):
    """Warn that the workers of a cluster are of several kinds, whose results can differ in last bits.

    See Also
    --------
    warm : Issues it.

    Examples
    --------
    >>> issubclass(pb.MixedWorkersWarning, UserWarning)
    True
    """

    __module__ = "pullback"


def warm(client: Any, function: Callable[..., Any], /, *specs: Any, **keywords: Any) -> dict[str, int]:
    """Compile a function on the workers of a Dask cluster before it is needed, each kernel once.

    The function is called on one worker of each kind (version, processor), and then on all others, which read what it compiled
    from a shared cache folder, or get it as an archive.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    function : callable
        The function. It must be picklable, as for ``client.submit``.
    *specs : str, array, number or container of them
        The arguments of a call; a text such as ``"f64[1000,10]"`` stands for a random array.
    **keywords : object
        Arguments of the call that are passed by name.

    Returns
    -------
    dict of str to int
        The number of kernels that each worker compiled, by address.

    Raises
    ------
    Exception
        What the call raises.

    See Also
    --------
    distribute : Computes by blocks of rows on the workers.

    Examples
    --------
    >>> from distributed import Client
    >>> with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    ...     compiled = pb.warm(client, np.cumsum, "f64[100]")
    >>> len(compiled)
    1
    """
    values = [_value(spec, f"argument {k}") for k, spec in enumerate(specs)]
    named = {name: _value(spec, name) for name, spec in keywords.items()}
    name = getattr(function, "__name__", "function")
    return built_once(client, kinds_of(client), _Bound(function, named), tuple(values), name)


class _Bound:
    """A function with keywords."""

    def __init__(self, function: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
        self.function, self.keywords = function, keywords

    def __call__(self, *args: Any) -> Any:
        return self.function(*args, **self.keywords)


def _value(spec: Any, name: str) -> Any:
    return argument(spec, name, SEED) if isinstance(spec, str) else spec


def kinds_of(client: Any) -> dict[Kind, list[str]]:
    """Return the addresses of the workers of each kind, in order."""
    by_kind: dict[Kind, list[str]] = {}
    for address, kind in sorted(client.run(workers.kind_of_worker).items()):
        by_kind.setdefault(kind, []).append(address)
    return by_kind


def built_once(
    client: Any, by_kind: Mapping[Kind, Sequence[str]], build: Callable[..., Any], arguments: tuple[Any, ...], name: str
) -> dict[str, int]:  # fmt: skip
    """Call ``build`` on one worker of each kind, and then on all others. Returns how many kernels each compiled."""
    counts = _built_on(client, [addresses[0] for addresses in by_kind.values()], build, arguments, name)
    for first, *others in by_kind.values():
        if others:
            share_entries(client, first, others)
    return counts | _built_on(client, [a for _, *others in by_kind.values() for a in others], build, arguments, name)


def _built_on(
    client: Any, addresses: Sequence[str], build: Callable[..., Any], arguments: tuple[Any, ...], name: str
) -> dict[str, int]:  # fmt: skip
    token = secrets.token_hex(8)
    futures = {
        address: client.submit(
            workers.built_here, build, arguments, workers=[address], key=(f"{name}-compile-{token}", k), pure=False
        )
        for k, address in enumerate(addresses)
    }
    return dict(client.gather(futures))


def share_entries(client: Any, first: str, others: Sequence[str]) -> None:
    """Send the cache entries of a worker to those others that lack them: none if they share a folder."""
    keys = client.run(workers.entry_keys, workers=[first])[first]
    missing = client.run(workers.lacking, keys, workers=list(others))
    wanted = sorted({key for each in missing.values() for key in each})
    if not wanted:
        return
    files = client.run(workers.entries_of, wanted, workers=[first])[first]
    receivers = [address for address, each in missing.items() if each]
    client.run(workers.store_entries, files, workers=receivers)


def warn_of_kinds(by_kind: Mapping[Kind, Sequence[str]], name: str) -> None:
    """Warn that the bits of a function depend on which worker computes a block."""
    differing = [dict.fromkeys(values) for values in itertools.zip_longest(*by_kind, fillvalue="") if len(set(values)) > 1]
    what = "; ".join(" and ".join(values) for values in differing)
    warnings.warn(
        f"{name} has other last bits on some workers of this cluster than on others, which differ in: {what}. One value of "
        "PULLBACK_CPU for all, such as avx2, and one version give one kind of kernel",
        MixedWorkersWarning, stacklevel=2,
    )  # fmt: skip
