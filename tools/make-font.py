"""Writes src/web/shared/inter.woff2: Inter with Latin-1, punctuation, and weights from 400 to 600.

    npm pack @fontsource-variable/inter@5.3.0 && tar xzf fontsource-variable-inter-5.3.0.tgz
    python3 -m venv /tmp/font && /tmp/font/bin/pip install fonttools==4.68.0 brotli==1.2.1
    /tmp/font/bin/python tools/make-font.py package

The same versions write the same file. It is committed, since it hardly ever changes: a checkout
bundles its pages when they are first opened, and would need a font, a subsetter and a second more.
Other letters, such as those of Polish names, are shown in the font of the system.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

CHARACTERS = "U+20-7E,U+A0-FF,U+131,U+152-153,U+2013-2014,U+2018-201E,U+2022,U+2026,U+20AC,U+2122,U+2212"
# Figures of one width are those of tables.
FEATURES = ["kern", "tnum", "mark", "mkmk", "ccmp"]

package = Path(sys.argv[1])
web = Path(__file__).parent.parent / "src/web/shared"
font = TTFont(package / "files/inter-latin-wght-normal.woff2", recalcTimestamp=False)
options = subset.Options(layout_features=FEATURES, flavor="woff2", hinting=False, name_IDs=[0, 1, 2, 13, 14])
cut = subset.Subsetter(options)
cut.populate(unicodes=subset.parse_unicodes(CHARACTERS))
cut.subset(font)
font = instancer.instantiateVariableFont(font, {"wght": (400, 600)})
subset.save_font(font, str(web / "inter.woff2"), options)
(web / "inter.license").write_bytes((package / "LICENSE").read_bytes())
