import pytest

pytestmark = pytest.mark.meta


def test_x() -> None:
    pass
