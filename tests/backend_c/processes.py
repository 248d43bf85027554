"""What tests ask of processes."""

from pathlib import Path


def gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"
