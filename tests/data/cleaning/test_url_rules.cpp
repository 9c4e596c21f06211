// URLs: what Megatron-LM's blacklist_urls.py removes, and what it leaves.
#include <algorithm>
#include "data/cleaning/url_rules.h"

#include "support/catch.h"

using namespace megatron;

TEST_CASE("urls: well formed or not", "[urls]") {
  for (const char* good :
       {"http://example.com", "https://example.com/", "HTTPS://EXAMPLE.COM/a?b=c#d", "http://example.com:8080/x",
        "http://1.2.3.4/x", "http://1.2.3.4", "http://a-b.example.museum./x", "http://example.com?q",
        "http://xn--bcher-kva.example/\xC3\xA4", "http://example.longtopdomain/x"}) {
    INFO(good);
    CHECK(is_well_formed_url(good));
  }
  for (const char* bad : {"",
                          "example.com",
                          "ftp://example.com",
                          "http://",
                          "http://localhost/x",
                          "http://example",
                          "http://-a.com",
                          "http://a-.com/",
                          "http://a..com/",
                          "http://.com",
                          "http://example.com/a b",
                          "http://example.com:x/",
                          "http://example.com:/",
                          "http://user@example.com/x",
                          "http://1.2.3/x",
                          "http://1.2.3.4.5/x",
                          "http://b\xC3\xBC"
                          "cher.example/",
                          "http://example.com/a\xC2\xA0"
                          "b",
                          "http://example.com#top",
                          "http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.com/"}) {
    INFO(bad);
    CHECK_FALSE(is_well_formed_url(bad));
  }
}

TEST_CASE("urls: the registered name is in front of the suffix", "[urls]") {
  CHECK(registered_name("example.com") == "example");
  CHECK(registered_name("a.b.example.org") == "example");
  CHECK(registered_name("www.example.co.uk") == "example");
  CHECK(registered_name("example.com.au") == "example");
  CHECK(registered_name("co.uk") == "co");
  CHECK(registered_name("t.co") == "t");
  CHECK(registered_name("localhost") == "localhost");
  CHECK(registered_name("1.2.3.4").empty());
  CHECK(registered_name("").empty());
  CHECK(host_of("http://user:word@example.com:80/x@y") == "example.com");
  CHECK(host_of("example.com/x") == "example.com");
}

TEST_CASE("urls: the first fault in the order of the checks", "[urls]") {
  UrlRules rules({"amazon", "blog.example.com"}, {".JPG", ".7z", ".ai"}, 9);
  CHECK(rules.fault_of("http://www.amazon.co.uk/x.jpg") == UrlFault::domain);
  CHECK(rules.fault_of("https://AMAZON.com") == UrlFault::domain);
  CHECK(rules.fault_of("http://amazonas.com/") == UrlFault::none);
  CHECK(rules.fault_of("http://a.blog.example.com/") == UrlFault::domain);
  CHECK(rules.fault_of("http://ablog.example.com/") == UrlFault::none);
  CHECK(rules.fault_of("http://example.com/a.Jpg?size=2") == UrlFault::extension);
  CHECK(rules.fault_of("http://example.com/a?b.jpg") == UrlFault::none);
  CHECK(rules.fault_of("http://example.com/a.7z") == UrlFault::extension);
  CHECK(rules.fault_of("http://example.com/a.ai") == UrlFault::extension);
  CHECK(rules.fault_of("http://example.ai") == UrlFault::none);
  CHECK(rules.fault_of("http://a") == UrlFault::too_short);
  CHECK(rules.fault_of("http://ab") == UrlFault::malformed);
  CHECK(rules.fault_of("") == UrlFault::too_short);
}

TEST_CASE("urls: a host of more than 253 bytes is in no list") {
  UrlRules rules({"amazon", "blog.example.com"}, {}, 9);
  std::string host;
  while (host.size() < 236) host += "a.";
  CHECK(rules.fault_of("http://" + host + "blog.example.com/x") == UrlFault::domain);
  CHECK(rules.fault_of("http://aa." + host + "blog.example.com/x") == UrlFault::none);
  while (host.size() < std::size_t{1} << 22) host += "a.";
  CHECK(rules.fault_of("http://" + host + "amazon.com/x") == UrlFault::none);  // in no time
}

TEST_CASE("urls: the default lists are lower case, without doubles", "[urls]") {
  for (auto list : {default_url_domains(), default_url_extensions()}) {
    const std::size_t size = list.size();
    std::sort(list.begin(), list.end());
    CHECK(std::unique(list.begin(), list.end()) == list.end());
    CHECK(size > 50);
    for (const std::string& word : list) {
      CHECK(std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
    }
  }
  for (const std::string& extension : default_url_extensions()) CHECK(extension.starts_with('.'));
}
