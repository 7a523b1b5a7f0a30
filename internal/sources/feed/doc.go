// SPDX-License-Identifier: Apache-2.0

// Package feed fetches lists of addresses over HTTP, parses them, and keeps the last good copy of each on disk. It handles HTTP, formats and files.
// It depends on neither the kernel nor the policy.
//
// A Source has the parameters and the limits of a list. Store.Refresh fetches the list when it is due (fetch.go), verifies it (verify.go), parses it
// (read.go), removes addresses that no external list may contain (screen.go), and replaces the previous copy (store.go). If the list shrank or grew
// too much, it is held until Store.Accept. After any failure the previous copy stays. A copy is a list file in the format of `file:` sets. Its first
// line is a comment with the metadata.
//
//	store := feed.InState(state)
//	outcome, err := store.Refresh(ctx, &feed.Fetcher{}, source, false)
//	head, set, err := store.Copy(source)
package feed
