"""What a program does: facts about integers, uniformity, footprints, control flow. Changes nothing."""
