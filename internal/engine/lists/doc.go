// Package lists knows the live sets of a policy: those whose content is a list that is fetched (internal/sources/feed), or countries and
// autonomous systems of a database (internal/sources/geo), and is exchanged while the policy runs. In: the policy, the store of copies,
// and what this host cannot do without. Out: what each set is to hold (Screen, Content), what it was made of (Origin), and how all
// of them stand (Status). It changes nothing in the kernel: engine/control does.
//
//	change, err := lists.Changed(feed.InState(state), m, false) // m: the manifest of what runs
//	if len(change.Content) > 0 {                                // also beside an error, which is about other sets
//		program = change.Applied(before)
//	}
package lists
