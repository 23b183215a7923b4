"""Objects that nobody in their right mind would write, and everybody with a namespace may."""
