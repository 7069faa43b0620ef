from tests.support.paths import root_dir
from tests.support.repo_rig import git_account, repos

__all__ = ["git_account", "repos", "root_dir"]
