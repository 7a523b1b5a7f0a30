// SPDX-License-Identifier: Apache-2.0

// Package shorthand reads rules and services in one short line, as people type them: `tcp/8080 from 203.0.113.0/24`. It also reads the grammar of
// ufw, such as `proto tcp from 10.0.0.0/8 to any port 22`. It writes them as entries of a policy, and finds the entries of a policy that they
// describe. It changes no text: package edit does.
//
//	r, err := shorthand.Parse(shorthand.Allow, []string{"tcp/8080", "from", "203.0.113.0/24"})
//	list, entry, err := r.Entry(p)
//	found, err := r.Find(p) // the entries that the request describes
//	for _, f := range found {
//		fmt.Print(f.List, f.Index)
//	}
package shorthand
