"""What is there to learn from? One file a task."""

from untrained.tasks.text import TextTask, text

__all__ = ["TextTask", "text"]
