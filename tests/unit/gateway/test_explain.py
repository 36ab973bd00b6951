"""Decisions are remembered newest first, within bounds."""

from __future__ import annotations

from gateway.explain import ExplainParams, Explanations


def test_the_newest_decision_comes_first_and_the_limit_holds() -> None:
    explanations = Explanations()
    for n in range(5):
        explanations.record("lab", "f", 2, f"start {n}", "calls wait", f"w{n}", float(n))
    rows = explanations.recent("lab", "f", 2)
    assert [row["decision"] for row in rows] == ["start 4", "start 3"]
    assert rows[0] == {"at": 4.0, "revision": 2, "decision": "start 4", "reason": "calls wait", "worker": "w4"}
    assert explanations.recent("lab", "g", 10) == []


def test_what_is_remembered_is_bounded() -> None:
    explanations = Explanations(ExplainParams(decisions_max=3, functions_max=2, reason_chars_max=5))
    for n in range(10):
        explanations.record("lab", "a", 1, "d", "long reason", "", float(n))
    assert [row["at"] for row in explanations.recent("lab", "a", 99)] == [9.0, 8.0, 7.0]
    assert explanations.recent("lab", "a", 1)[0]["reason"] == "long "
    explanations.record("lab", "b", 1, "d", "r", "", 1.0)
    explanations.record("lab", "a", 1, "d", "r", "", 2.0)
    explanations.record("lab", "c", 1, "d", "r", "", 3.0)
    assert [bool(explanations.recent("lab", name, 1)) for name in "abc"] == [True, False, True]


def test_a_deleted_function_is_forgotten() -> None:
    explanations = Explanations()
    explanations.record("lab", "a", 1, "d", "r", "", 1.0)
    explanations.forget("lab", "a")
    explanations.forget("lab", "a")
    assert explanations.recent("lab", "a", 1) == []
