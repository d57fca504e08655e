"""What each op is: reference, derivative, shape rule, cost, formula, sample inputs. See `registry`."""
