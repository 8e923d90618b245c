"""The checked quiz: a question's form of answer, what it says to an answer, and the summary."""
