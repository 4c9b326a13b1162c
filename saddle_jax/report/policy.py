"""What a page may do: a content security policy that lets nothing run but the page's own script.

Scripts and styles are known by their hashes. Nothing is fetched; a page that a server keeps up to date may
ask that server, and no other.
"""

import base64
import hashlib
import json
import re
from html import escape
from typing import Any

_IN_SCRIPT = re.compile("[<>&\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def policy(script: str, style: str, is_served: bool = False) -> str:
    """Returns the policy of a page with this script and this style, each the text of one element.

    They are hashed as our own files have them, never as they stand in a page: what a name in a run's folder
    might smuggle into the page must not be allowed to run.
    """
    own = "'self'" if is_served else "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            f"connect-src {own}",
            f"form-action {own}",
            "base-uri 'none'",
        )
    )


def meta_element(script: str, style: str) -> str:
    """Returns the element by which a page that is a file states its policy."""
    return f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(script, style))}">'


def embed(content: Any) -> str:
    """Encodes JSON that may stand inside a script element, whatever its texts say."""
    return _IN_SCRIPT.sub(_escaped, as_json(content))


def as_json(content: Any) -> str:
    """Encodes JSON as text that has an encoding, as half a pair of surrogates, in a name, has none."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATES.sub(lambda found: "\\" + _escaped(found), text)  # the page's text spells it so, too


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
