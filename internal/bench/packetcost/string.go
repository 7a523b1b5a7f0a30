package bench

// nftSearches is why there is no row for nft.
const nftSearches = "nft has no match for text anywhere"

// stringCases are the article's two, and one with more strings.
func stringCases() []costCase {
	one := func(algo string, article articleRow) costCase {
		return costCase{
			name: "string/" + algo, label: "drop, after a string match (" + algo + ")", article: &article,
			install: raw(stringRules(algo, searched(1)) + "-A PREROUTING " + dropRule),
			lacks:   "it has one way to search: see string match (bm)",
		}
	}
	policy := func(n int) func() (string, func(), error) {
		return text(costPolicy + "rules:\n" + stringPolicy(searched(n)) + dropPolicy)
	}
	bm, many := one("bm", articleRow{255, "10%"}), one("bm", articleRow{})
	bm.own, bm.policy, bm.times = "drop, after a string match", policy(1), leastString
	many.name, many.label, many.article = "string/n=64", "drop, after 64 string matches", nil
	many.install = raw(stringRules("bm", searched(mostStrings)) + "-A PREROUTING " + dropRule)
	many.policy, many.times = policy(mostStrings), leastStrings
	for _, c := range []*costCase{&bm, &many} {
		c.cannot = map[string]string{"nftables": nftSearches}
	}
	return []costCase{bm, one("kmp", articleRow{235, "17%"}), many}
}
