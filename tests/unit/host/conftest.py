from tests.support.paths import root_dir

__all__ = ["root_dir"]
