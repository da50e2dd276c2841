"""The operator's few pages of our own: plain HTML, no script, nothing from anywhere else."""

import base64
import hashlib
from html import escape

from api.errors import Headers

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:26rem;margin:15vh auto;padding:0 1rem}"
    "body{color:#222;background:#fff}"
    "input,button{font:inherit;width:100%;box-sizing:border-box;padding:.5rem;margin:.3rem 0}"
    "p.error{color:#a00}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}p.error{color:#f77}}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Headers = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    # Not no-referrer: with it a browser sends `Origin: null` with the form.
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'".encode(),
    ),
]


def login_page(next_path: str, error: str = "") -> bytes:
    """The form for an admin key. Its fields are named as a password manager expects them."""
    told = f'<p class="error" role="alert">{escape(error)}</p>' if error else ""
    return _page(
        "Log in",
        f"""{told}<form method="post" action="/login">
<input type="text" name="username" value="admin" autocomplete="username" readonly hidden>
<input type="hidden" name="next" value="{escape(next_path)}">
<label>Admin key<input type="password" name="key" autocomplete="current-password" required autofocus></label>
<button type="submit">Log in</button>
</form><p>The first start printed one; <code>coderai tokens create NAME --scope admin</code> makes another.</p>""",
    )


def logout_page() -> bytes:
    """One button: a link alone must not log anybody out."""
    return _page("Log out", '<form method="post" action="/logout"><button type="submit">Log out</button></form>')


def once_more_page(path: str) -> bytes:
    """Asks the browser to come again at once: after a link on another site it withholds a SameSite=Strict cookie, and
    from a page of ours it sends it."""
    return _page("One moment", f'<p><a href="{escape(path)}">Continue</a></p>', refresh=f"0; url={path}")


def waiting_page(sentence: str) -> bytes:
    """Says why there is nothing yet, and looks again every two seconds."""
    return _page("The flow-run server is not there yet", f"<p>{escape(sentence)}</p>", refresh="2")


def message_page(title: str, sentence: str) -> bytes:
    """One sentence."""
    return _page(title, f'<p>{escape(sentence)}</p><p><a href="/flows/">Flow runs</a></p>')


def _page(title: str, body: str, refresh: str = "") -> bytes:
    again = f'<meta http-equiv="refresh" content="{escape(refresh)}">' if refresh else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} - CoderAI</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{again}<style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    ).encode()
