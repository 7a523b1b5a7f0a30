// Package policy is Floodwall's language: it reads a policy file, and says all that is wrong with it at once, by line
// and column. It knows no kernel and touches no file but the policy's own.
//
//	p, err := policy.Parse("policy.yaml", text)
//	var mistakes policy.Errors // all of them, each with place and remedy
//	if errors.As(err, &mistakes) {
//		fmt.Print(mistakes[0].Line, mistakes[0].Hint)
//	}
package policy
