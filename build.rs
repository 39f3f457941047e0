//! Sets up the Node addon when the feature `node` asks for it, and looks whether the web page is there that stands in the program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=web/dist");
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let page = std::path::Path::new(&root).join("web/dist/index.html");
    assert!(page.exists(), "{} is missing: `npm run web` makes it", page.display());
    if std::env::var_os("CARGO_FEATURE_NODE").is_some() {
        napi_build::setup();
    }
}
