"""What ``pb.torch`` says where PyTorch is not installed."""

import sys

import pytest

import pullback as pb


def test_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "pullback.torch", raising=False)
    monkeypatch.delitem(vars(pb), "torch", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pb\.torch wraps functions for PyTorch, which is not installed"):
        _ = pb.torch
    assert "torch" not in pb.__all__
