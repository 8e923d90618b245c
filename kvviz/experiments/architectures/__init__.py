"""What other layers keep of a text: tiny models of true architectures with random weights, decoded step by step."""
