"""``python -m narrowgauge``: the same as the command."""

import sys

from narrowgauge.command import main

sys.exit(main())
