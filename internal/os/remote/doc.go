// Package remote says in plain words how servers of others fail. No text of theirs steers a terminal or fills a log.
//
//	if _, err := http.Get(url); err != nil {
//		fmt.Print(remote.Why(err)) // "the name is not known", without the address
//	}
package remote
