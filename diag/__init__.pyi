from diag.api import connect as connect
from diag.api import open_bundle as open_bundle
from diag.api import render as render
from diag.api import triage as triage
from diag.errors import DiagError as DiagError
from diag.model import Assessment as Assessment
from diag.model import Evidence as Evidence
from diag.model import Finding as Finding
from diag.model import Series as Series
from diag.model import Verdict as Verdict
from diag.model import Window as Window

__version__: str
__all__ = [
    "Assessment",
    "DiagError",
    "Evidence",
    "Finding",
    "Series",
    "Verdict",
    "Window",
    "connect",
    "open_bundle",
    "render",
    "triage",
]
