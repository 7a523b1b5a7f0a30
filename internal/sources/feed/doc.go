// Package feed fetches lists of addresses over HTTP, reads them, and keeps the last good copy of each on disk. It knows HTTP,
// formats and files, and no kernel and no policy.
//
// A Source says what a list is and what is allowed of it. Store.Refresh fetches it when it is due (fetch.go), verifies it
// (verify.go), reads it (read.go), removes what no list from outside may name (screen.go), and puts it in the place of the
// copy before (store.go), unless it shrank or grew too much: then it is held until Store.Accept. Whatever fails, the copy
// before stays. A copy is a list file as `file:` sets read it, whose first line is a comment with what is known of it.
//
//	store := feed.InState(state)
//	outcome, err := store.Refresh(ctx, &feed.Fetcher{}, source, false)
//	head, set, err := store.Copy(source)
package feed
