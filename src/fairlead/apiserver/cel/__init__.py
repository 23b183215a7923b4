"""CEL: parsed, type-checked, evaluated."""
