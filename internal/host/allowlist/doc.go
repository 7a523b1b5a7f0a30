// Package allowlist knows whom no program may ban on this host: prefixes that the policy never has banned, and what the host cannot do
// without. It bans nobody itself.
//
//	list := allowlist.Now(never)
//	if why := list.Why(prefix); why != "" { // it is a lifeline, an own address, or in `never`
//		refuse(why)
//	}
package allowlist
