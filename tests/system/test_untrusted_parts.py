"""Who is inside, and who is not."""

import threading

import pytest

from declutr.system.untrusted_parts import is_untrusted, untrusted


def test_inside_and_outside() -> None:
    assert not is_untrusted()
    with untrusted():
        with untrusted():
            assert is_untrusted()
        assert is_untrusted()
    assert not is_untrusted()


def test_errors_end_it() -> None:
    with pytest.raises(KeyError), untrusted():
        raise KeyError
    assert not is_untrusted()


def test_other_threads_are_outside() -> None:
    seen: list[bool] = []
    with untrusted():
        thread = threading.Thread(target=lambda: seen.append(is_untrusted()))
        thread.start()
        thread.join()
    assert seen == [False]
