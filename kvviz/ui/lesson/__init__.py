"""The teacher's page: plans with their times, questions with answers, what goes wrong, a handout."""
