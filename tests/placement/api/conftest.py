"""The same cluster, client and API as the tests of `web` have."""

from tests.web.conftest import api as api
from tests.web.conftest import client as client
from tests.web.conftest import cluster as cluster
from tests.web.conftest import no_task_left as no_task_left
