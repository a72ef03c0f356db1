def reward(prompt, response, answer):
    return float(response[:1] in answer)
