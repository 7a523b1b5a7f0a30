// Package remote says in plain words how servers of others fail. No text of theirs steers a terminal or fills a log. It sends no request.
//
//	if _, err := http.Get(url); err != nil {
//		fmt.Print(remote.Why(err)) // in plain words, without control characters
//	}
package remote
