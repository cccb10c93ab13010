"""A site's diary: whoever opens it again is where the site was; somebody else's is nobody's."""

import jax.numpy as jnp
import numpy as np

from fedmin.engines.sessions.diary import Answered, Diary
from fedmin.engines.sessions.places import Place


def state(value: float) -> dict:
    return {"control": jnp.full(2, value)}


def answer(round: int, phase: int, trip: int, value: float) -> Answered:
    return Answered(Place(round, phase, trip), b"mark", b"ask", b"reply", state(value))


def test_it_is_read_as_it_was_written(tmp_path):
    diary = Diary("site a", state(0.0), tmp_path)
    for each in (answer(0, 1, 0, 1.0), answer(0, 1, 1, 2.0), answer(1, 0, 0, 2.0)):
        diary.add(each)
    again = Diary("site a", state(0.0), tmp_path)
    assert (again.place, again.told, again.start.place) == (Place(1, 0, 0), 2, Place(0, 1, 1))
    assert again.found(Place(1, 0, 0)).reply == b"reply"
    assert again.marks == {Place(1, 0, 0): b"mark"}
    np.testing.assert_array_equal(again.state["control"], [2.0, 2.0])
    again.add(answer(1, 1, 0, 3.0))
    assert again.told == 3
    assert again.back(2)  # its last reply was not used
    assert again.place == Place(1, 0, 0)
    np.testing.assert_array_equal(again.state["control"], [2.0, 2.0])


def test_one_that_was_only_begun_is_read_too(tmp_path):
    Diary("site a", state(0.0), tmp_path).restart(Place(4, 1, 0), 5, state(7.0))
    again = Diary("site a", state(0.0), tmp_path)
    assert (again.place, again.told) == (Place(4, 1, 0), 5)
    np.testing.assert_array_equal(again.state["control"], [7.0, 7.0])


def test_another_runs_is_not_taken_up(tmp_path):
    Diary("site a", state(0.0), tmp_path).add(answer(0, 1, 0, 1.0))
    other = Diary("site b", state(0.0), tmp_path)
    assert (other.told, other.answers) == (0, [])
    np.testing.assert_array_equal(other.state["control"], [0.0, 0.0])
