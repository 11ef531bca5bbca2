"""Names that mean something to a file system, a shell, a template, a page, a log or a database."""

NAMES = (
    "../../../../tmp/owned",
    "/etc/owned",
    "..",
    "a/../b",
    "%2e%2e%2fowned",
    "$(touch owned)",
    "`touch owned`",
    "; touch owned #",
    "'; DROP TABLE x; --",
    '"quoted" \\',
    "{{ 7*7 }}${owned}",
    "<script>alert('owned')</script>",
    "line\nINJECTED as a line\r\nX-Header: owned",
    "\x1b[31mred\x00",
    "-\u202eowned",
    "--conf=spark.owned=1",
)

BUNDLES = tuple(f"acme/{name}/0x00000000_0x10000000" for name in NAMES)
