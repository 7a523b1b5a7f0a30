// SPDX-License-Identifier: Apache-2.0

// Package policy defines Floodwall's policy language. It parses a policy file, and reports all mistakes at once, by
// line and column. It does not depend on the kernel, and reads no file except the policy itself.
//
//	p, err := policy.Parse("policy.yaml", text)
//	var mistakes policy.Errors // all of them, each with place and remedy
//	if errors.As(err, &mistakes) {
//		fmt.Print(mistakes[0].Line, mistakes[0].Hint)
//	}
package policy
